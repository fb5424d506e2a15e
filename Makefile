# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# usiw: `make demo` shows the main job, `make check` runs every test. Both set a fresh
# Debian 12 up first (as root). `make help` lists the rest.

BUILD  := build
JOBS   := $(shell nproc)
CMAKE_FLAGS := -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo

.DEFAULT_GOAL := help
.PHONY: help demo compare check check-unit check-core setup-demo setup-local setup-check setup-programs all module provider tools unit clean install install-local install-files uninstall dkms dkms-source deb rpm
.PHONY: bench bench-quick bench-instructions compat
.PHONY: sid-kernel module-sid check-long chaos debug-kernel module-debug check-debug fuzz fuzz-corpus fuzzers sim sim-night demo-local check-local check-programs check-distros check-harness check-packages

help:
	@echo 'make demo        build all, boot a guest, run rping and perftest over usiw, print a table'
	@echo 'make demo-local  rping and perftest on this machine itself, without module or guest (under a minute)'
	@echo 'make check       every test: unit (also under sanitizers), usiw-run, guests on 6.1, a core set on 6.12'
	@echo 'make check-core  the same with the core set only in the guests'
	@echo 'make check-local  the end-to-end suite without a module, on this machine'
	@echo 'make check-unit  unit tests only (under 2 minutes)'
	@echo 'make check-programs  real programs that make check leaves out, on this machine: installs Ceph (minutes)'
	@echo 'make check-long  the rest: sim-night, fuzz SECONDS=1800, chaos, sid, aarch64, two guests (seven hours)'
	@echo 'make check-distros  usiw-run built and tested on Debian 13 and sid, which it fetches (once)'
	@echo 'make check-packages  the packages, in trees of Debian 12, 13 and sid'
	@echo 'make chaos       disturbances in random order under verified traffic: SEED=n (1), STEPS=n (200), KERNEL=6.1'
	@echo 'make debug-kernel  a guest kernel with KASAN, lockdep, kmemleak ... (up to half an hour, cached)'
	@echo 'make check-debug   the whole guest suite on it, for hours (docs/testing-kernel.md)'
	@echo 'make module-sid  the module for the kernel of Debian sid, which it fetches (once; docs/testing-guest.md)'
	@echo 'make fuzz        every fuzzer for SECONDS=n (60), two at a time, and a table (docs/testing-fuzz.md)'
	@echo 'make sim         the simulation: 10,000 seeds (sim-night: an hour, or 1,000,000)'
	@echo 'make compare     usiw beside siw and rxe in the same guest (a markdown table)'
	@echo 'make compat      tries real programs under usiw-run and in a guest, writes docs/compatibility.md (20 minutes)'
	@echo 'make bench       usiw beside all its peers, 40 minutes, into build/bench/DATE (BENCH_GUESTS=0: no guests)'
	@echo 'make bench-quick  few cells of it on this machine itself, in minutes'
	@echo 'make bench-instructions  instructions per message beside tests/bench/instructions.txt'
	@echo 'make all         module for both guest kernels, provider, tests'
	@echo 'make install     module for the running kernel, provider, usiw and usiw-run, on this machine (DESTDIR=, KVER=)'
	@echo 'make install-local  the same without the module'
	@echo 'make uninstall   removes what install has put there (the same PREFIX, DESTDIR)'
	@echo 'make deb         packages for Debian 12 and 13: usiw and usiw-dkms, in build/deb'
	@echo 'make rpm         packages for Fedora, in build/rpm (built on Debian, not tried on Fedora)'
	@echo 'make dkms        the module by DKMS, for this kernel and each that comes (KVER=)'
	@echo 'make clean       remove build/'

# ---- set-up: apt packages, nothing when all are there ----
setup-demo:
	@scripts/setup demo
setup-local:
	@scripts/setup local
setup-check:
	@scripts/setup check
setup-programs:
	@scripts/setup programs

# ---- the module, out of tree, once per kernel ----
# $(call build_module,VERSION,TREE OF THE KERNEL,OTHER VARIABLES,MAKE): a farm of symbolic links per kernel, so that
# objects of two kernels never meet. MAKE is for a kernel that needs another make than this one.
define build_module
	@mkdir -p $(BUILD)/kmod/$(1)
	@cp -asf $(CURDIR)/Kbuild $(CURDIR)/kmod $(CURDIR)/cm $(CURDIR)/uapi $(BUILD)/kmod/$(1)/
	@find $(BUILD)/kmod/$(1) -xtype l -delete
	@scripts/step -q 'module for $(1)' $(or $(4),$(MAKE)) -s -j$(JOBS) -C $(2) M=$(CURDIR)/$(BUILD)/kmod/$(1) $(3) W=1 modules
endef

# usiw is the one module of the debug kernel, and the one part that UBSAN checks.
DEBUG := $(BUILD)/debug-kernel/objects
debug-kernel:
	@scripts/setup debug
	@scripts/vm prepare debug
module-debug: debug-kernel
	$(call build_module,$(shell cat $(DEBUG)/include/config/kernel.release),$(DEBUG),UBSAN_SANITIZE=y)

# The headers of Debian sid's kernel have programs for sid's C library: make runs in sid's tree below build/distros.
sid-kernel:
	@scripts/setup check
	@scripts/vm prepare sid
module-sid: sid-kernel
	$(call build_module,$(shell scripts/kver sid),/lib/modules/$(shell scripts/kver sid)/build,,scripts/distro sid make)

module-%: 
	$(call build_module,$(shell scripts/kver $*),/lib/modules/$(shell scripts/kver $*)/build)
module: module-6.1 module-6.12

# ---- userspace ----
$(BUILD)/build.ninja:
	@cmake -S . -B $(BUILD) $(CMAKE_FLAGS) >$(BUILD)/cmake.log 2>&1 || { cat $(BUILD)/cmake.log; exit 1; }
$(BUILD)/asan/build.ninja:
	@cmake -S . -B $(BUILD)/asan $(CMAKE_FLAGS) -DUSIW_SANITIZE=ON >$(BUILD)/asan.log 2>&1 || { cat $(BUILD)/asan.log; exit 1; }
$(BUILD)/tsan/build.ninja:
	@cmake -S . -B $(BUILD)/tsan $(CMAKE_FLAGS) -DUSIW_SANITIZE=thread >$(BUILD)/tsan.log 2>&1 || { cat $(BUILD)/tsan.log; exit 1; }
$(BUILD)/build.ninja $(BUILD)/asan/build.ninja $(BUILD)/tsan/build.ninja: | $(BUILD)
$(BUILD):
	@mkdir -p $@

provider: $(BUILD)/build.ninja
	@scripts/step 'provider and usiw-run' cmake --build $(BUILD) --target usiw_provider usiw_run usiw-run -- -j$(JOBS)
tools: $(BUILD)/build.ninja
	@scripts/step 'tool usiw' cmake --build $(BUILD) --target usiw -- -j$(JOBS)
# Configured anew, which takes a second: GoogleTest may have come since.
unit: | $(BUILD)
	@cmake -S . -B $(BUILD) $(CMAKE_FLAGS) >$(BUILD)/cmake.log 2>&1 || { cat $(BUILD)/cmake.log; exit 1; }
	@scripts/step 'programs and tests' cmake --build $(BUILD) -- -j$(JOBS)
all: setup-check module unit

# ---- the two commands ----
# On the kernel whose headers the distribution has: 6.1, or 6.12 of Debian 13.
demo: setup-demo provider
	@kernel=$$(scripts/kver 6.1 >/dev/null 2>&1 && echo 6.1 || echo 6.12) && \
		$(MAKE) --no-print-directory module-$$kernel && scripts/demo --kernel $$kernel
demo-local: setup-local provider tools
	@scripts/demo-local
# BENCH_GUESTS=0 leaves the guests out, and with them all that only they need.
BENCH_GUESTS ?= 1
export BENCH_GUESTS
bench: $(if $(filter 0,$(BENCH_GUESTS)),,setup-check module-6.1)
bench bench-quick: setup-local provider
	@scripts/setup bench
	@cmake --build $(BUILD) --target bare many_qps -- -j$(JOBS)
	@scripts/bench $(if $(filter bench-quick,$@),--quick)
bench-instructions: setup-local $(BUILD)/build.ninja
	@scripts/setup bench
	@cmake --build $(BUILD) --target engine_bench -- -j$(JOBS)
	@scripts/bench instructions
compare: setup-check module-6.1 provider
	@scripts/compare

# Which real programs run (docs/compatibility.md): by hand, no part of `make check`. Installs these programs.
compat: setup-check module-6.1 provider tools
	@tests/compat/run

check-unit: setup-check unit
	@tests/run unit
check: setup-check module unit
	@tests/run all
check-core: setup-check module unit
	@tests/run core
check-local: setup-check unit
	@tests/run local

# Real programs that are too large for `make check`. Its own set-up installs them.
check-programs: setup-programs provider tools
	@tests/run programs

check-long: setup-check module unit
	@$(MAKE) --no-print-directory sim-night
	@$(MAKE) --no-print-directory fuzz SECONDS=1800
	@$(MAKE) --no-print-directory chaos
	@$(MAKE) --no-print-directory check-harness
	@$(MAKE) --no-print-directory check-distros
	@tests/distros/alone
	@tests/distros/alone clang++
	@tests/distros/cross
	@$(MAKE) --no-print-directory check-packages
	@$(MAKE) --no-print-directory module-sid
	@tests/vm/run perftest-all core-sid
	@tests/vm/run hosts

# A storm of its own length (tests/vm/test_storm.py); `make check` has a short one. A step takes 3 to 10 s.
# GUEST: further options of scripts/vm (--topology hosts --kernel-b 6.12); STORM: of the test (--storm-without-module).
SEED := 1
STEPS := 200
KERNEL := 6.1
GUEST :=
STORM :=
chaos: setup-check module-$(KERNEL) unit
	@scripts/vm run --kernel $(KERNEL) $(GUEST) --timeout $$((300 + 20 * $(STEPS))) --name chaos-$(SEED) --unload \
		--allow-dmesg 'af_packet: packet size is too long' -- \
		/usr/bin/python3 -m pytest -v -c tests/vm/pytest.ini tests/vm/test_storm.py \
		--storm-seed=$(SEED) --storm-steps=$(STEPS) $(STORM)

# The guest harness's own tests; `make check` leaves out most of those that boot a guest.
check-harness: setup-check module
	@/usr/bin/python3 -m pytest -q -p no:cacheprovider scripts/selftest

# On other releases of Debian, by trees below build/distros (tests/distros/run); `make check` tries Debian 13, in short.
check-distros: setup-check
	@tests/distros/run trixie sid

# Built, compared, installed, upgraded, removed and purged in trees of releases, used in guests (tests/packaging/run).
check-packages: setup-check
	@scripts/setup deb
	@scripts/setup rpm
	@tests/packaging/run rpm bookworm trixie sid guest

check-debug: setup-check module-debug unit
	@tests/vm/run debug

# ---- fuzzers: a build of their own, with Clang ----
SECONDS := 60
TARGETS :=
$(BUILD)/fuzz/build.ninja: | $(BUILD)
	@CC=clang CXX=clang++ cmake -S . -B $(BUILD)/fuzz $(CMAKE_FLAGS) -DUSIW_FUZZ=ON >$(BUILD)/fuzz.log 2>&1 || { cat $(BUILD)/fuzz.log; exit 1; }
fuzzers: setup-check $(BUILD)/fuzz/build.ninja
	@cmake --build $(BUILD)/fuzz --target fuzzers -- -j$(JOBS)
fuzz: fuzzers
	@tests/fuzz/run $(SECONDS) $(TARGETS)
fuzz-corpus: fuzzers
	@tests/fuzz/run --merge $(TARGETS)

# ---- the simulation (docs/testing-simulation.md) ----
sim: setup-check $(BUILD)/build.ninja
	@cmake --build $(BUILD) --target sim face -- -j$(JOBS)
	$(BUILD)/tests/sim/sim --seeds 1..10000 --jobs $(JOBS)
	$(BUILD)/tests/sim/face --seeds 1..10000
sim-night: setup-check $(BUILD)/build.ninja
	@cmake --build $(BUILD) --target sim face -- -j$(JOBS)
	$(BUILD)/tests/sim/sim --seeds 1..1000000 --jobs $(JOBS) --time 3600
	$(BUILD)/tests/sim/face --seeds 1..1000000 --time 900

# ---- a real machine: KVER names another kernel than the running one, DESTDIR another root ----
# (Not := for what asks the compiler: setup-local may install it first.) Where a distribution has a folder per
# architecture libraries go there; else to lib64, if that is where it has its own.
MULTIARCH = $(shell gcc -print-multiarch 2>/dev/null)
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
LIBDIR ?= $(PREFIX)/$(if $(MULTIARCH),lib/$(MULTIARCH),$(if $(wildcard /usr/lib64/libc.so.6),lib64,lib))
LIBEXEC ?= $(PREFIX)/lib/usiw
SHARE ?= $(PREFIX)/share
KVER ?= $(shell uname -r)
# Debian's headers want modules signed and have no key for it: without the word for it the installation looks failed.
UNSIGNED = $(if $(wildcard /lib/modules/$(KVER)/build/certs/signing_key.pem),,CONFIG_MODULE_SIG_ALL=)
install: install-local
	$(call build_module,$(KVER),/lib/modules/$(KVER)/build)
	$(MAKE) -C /lib/modules/$(KVER)/build M=$(CURDIR)/$(BUILD)/kmod/$(KVER) INSTALL_MOD_PATH=$(DESTDIR) $(UNSIGNED) \
		modules_install
	$(if $(DESTDIR),,depmod -a $(KVER))
	@$(if $(DESTDIR),,packaging/signature-note $(KVER))
# The same module for each kernel that comes, by Debian's package dkms. It keeps what it built of this version before,
# which may have been built of an older source: so it is told to build once more.
DKMS_VERSION = $(shell sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' dkms.conf)
dkms-source:
	rm -rf $(DESTDIR)/usr/src/usiw-$(DKMS_VERSION)
	install -d $(DESTDIR)/usr/src/usiw-$(DKMS_VERSION)
	cp -r Kbuild dkms.conf kmod cm uapi LICENSES $(DESTDIR)/usr/src/usiw-$(DKMS_VERSION)
	rm -f $(DESTDIR)/usr/src/usiw-$(DKMS_VERSION)/*/.clang-format
dkms: dkms-source
	$(if $(DESTDIR),,dkms build --force usiw/$(DKMS_VERSION) -k $(KVER))
	$(if $(DESTDIR),,dkms install --force usiw/$(DKMS_VERSION) -k $(KVER))

# libibverbs looks into its own folder and where a file of this name says. So the provider may lie below any prefix.
DRIVER = $(SYSCONFDIR)/libibverbs.d/usiw.driver
# Lists of administrators, which are theirs: uninstall leaves them.
CONFIG = $(SYSCONFDIR)/usiw/devices
MANUALS = $(foreach page,$(notdir $(wildcard docs/man/*)),man$(subst .,,$(suffix $(page)))/$(page))
with_paths = sed 's,@LIBEXEC@,$(LIBEXEC),' $(1) > $(2) && chmod 0644 $(2)
install-local: provider tools
	@$(MAKE) --no-print-directory install-files
install-files:
	install -D -s -m 0755 $(BUILD)/tools/usiw $(DESTDIR)$(PREFIX)/bin/usiw
	install -D -s -m 0755 $(BUILD)/run/usiw-run $(DESTDIR)$(PREFIX)/bin/usiw-run
	install -D -s -m 0644 $(BUILD)/run/libusiw-run.so $(DESTDIR)$(LIBDIR)/usiw/libusiw-run.so
	install -D -s -m 0644 $(BUILD)/provider/libusiw-provider.so $(DESTDIR)$(LIBDIR)/libibverbs/libusiw-provider.so
	cp -P $(BUILD)/provider/libusiw-rdmav*.so $(DESTDIR)$(LIBDIR)/libibverbs/
	install -d $(DESTDIR)$(SYSCONFDIR)/libibverbs.d
	echo 'driver $(LIBDIR)/libibverbs/libusiw' > $(DESTDIR)$(DRIVER)
	[ -e $(DESTDIR)$(CONFIG) ] || install -D -m 0644 packaging/devices $(DESTDIR)$(CONFIG)
	install -D -m 0755 packaging/attach $(DESTDIR)$(LIBEXEC)/attach
	install -d $(DESTDIR)$(PREFIX)/lib/udev/rules.d $(DESTDIR)$(PREFIX)/lib/systemd/system
	$(call with_paths,packaging/90-usiw.rules.in,$(DESTDIR)$(PREFIX)/lib/udev/rules.d/90-usiw.rules)
	$(call with_paths,packaging/usiw@.service.in,$(DESTDIR)$(PREFIX)/lib/systemd/system/usiw@.service)
	install -D -m 0644 tools/wireshark/usiw.lua $(DESTDIR)$(LIBDIR)/wireshark/plugins/usiw.lua
	install -D -m 0644 packaging/completion.bash $(DESTDIR)$(SHARE)/bash-completion/completions/usiw
	ln -sf usiw $(DESTDIR)$(SHARE)/bash-completion/completions/usiw-run
	set -e; for page in $(MANUALS); do install -D -m 0644 docs/man/$${page##*/} $(DESTDIR)$(SHARE)/man/$$page; done

# Of install and install-local, with the same PREFIX. Modules of all kernels; of DKMS: dkms remove usiw/VERSION.
uninstall:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/,bin/usiw bin/usiw-run lib/udev/rules.d/90-usiw.rules \
		lib/systemd/system/usiw@.service)
	rm -f $(addprefix $(DESTDIR)$(SHARE)/,$(addprefix man/,$(MANUALS)) bash-completion/completions/usiw \
		bash-completion/completions/usiw-run)
	rm -f $(DESTDIR)$(LIBDIR)/libibverbs/libusiw-*.so $(DESTDIR)$(LIBDIR)/usiw/libusiw-run.so
	rm -f $(DESTDIR)$(LIBDIR)/wireshark/plugins/usiw.lua $(DESTDIR)$(LIBEXEC)/attach $(DESTDIR)$(DRIVER)
	rm -f $(wildcard $(DESTDIR)/lib/modules/*/updates/usiw.ko $(DESTDIR)/lib/modules/*/extra/usiw.ko)
	rmdir --ignore-fail-on-non-empty $(wildcard $(DESTDIR)$(LIBDIR)/usiw $(DESTDIR)$(LIBEXEC))

# ---- packages of Debian: build/deb/usiw_VERSION_ARCH.deb and usiw-dkms_VERSION_all.deb ----
deb:
	@scripts/setup deb
	@packaging/deb

# ---- packages of Fedora: build/rpm/usiw-VERSION-1.ARCH.rpm and usiw-dkms-VERSION-1.noarch.rpm ----
rpm:
	@scripts/setup rpm
	@packaging/rpm/build

clean:
	rm -rf $(BUILD)
