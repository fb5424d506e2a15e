# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# Completion of usiw and usiw-run, for bash.

_usiw() {
	local word=${COMP_WORDS[COMP_CWORD]} devices
	devices=$(command ls /sys/class/infiniband 2>/dev/null)
	case ${COMP_WORDS[1]} in
	stat) COMPREPLY=($(compgen -W "$devices qp -i -c -j --prometheus --help" -- "$word")) ;;
	trace) COMPREPLY=($(compgen -W "show on off list qp -n -w --help $(pgrep -u "$(id -u)" 2>/dev/null)" -- "$word")) ;;
	*) COMPREPLY=($(compgen -W "stat trace help --version" -- "$word")) ;;
	esac
}

_usiw_run() {
	local word=${COMP_WORDS[COMP_CWORD]} last=${COMP_WORDS[COMP_CWORD - 1]}
	case $last in
	--port) COMPREPLY=($(compgen -W "auto shm socket packet" -- "$word")) && return ;;
	--device | --address | --loss | --reorder | --delay | --seed | --fail-wr | --kill-after) return ;;
	esac
	case $word in
	-*) COMPREPLY=($(compgen -W "--check --device --address --port --loss --reorder --delay --seed --fail-wr
		--kill-after --help --version" -- "$word")) ;;
	*) COMPREPLY=($(compgen -c -- "$word")) ;;
	esac
}

complete -F _usiw usiw
complete -o default -F _usiw_run usiw-run
