# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# Completion of usiw and usiw-run, for bash.

_usiw() {
	local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words
	((COMP_CWORD > 1)) || command=
	case $command in
	stat) words="$(command ls /sys/class/infiniband 2>/dev/null) qp -i --interval -c --count -j --json --prometheus" ;;
	trace) words="$(pgrep -u "$(id -u)" 2>/dev/null) show on off list qp -n --last -w --write" ;;
	report) words= ;;
	help) words="stat trace report" ;;
	*) words="stat trace report help --version" ;;
	esac
	COMPREPLY=($(compgen -W "$words -h --help" -- "$word"))
}

_usiw_run() {
	local word=${COMP_WORDS[COMP_CWORD]} last=${COMP_WORDS[COMP_CWORD - 1]}
	case $last in
	--port) COMPREPLY=($(compgen -W "auto shm socket packet" -- "$word")) && return ;;
	--face) COMPREPLY=($(compgen -W "iwarp roce" -- "$word")) && return ;;
	--device | --address | --loss | --reorder | --delay | --seed | --fail-wr | --kill-after) return ;;
	esac
	case $word in
	-*) COMPREPLY=($(compgen -W "--check --device --address --port --face --loss --reorder --delay --seed
		--fail-wr --kill-after -h --help --version" -- "$word")) ;;
	*) COMPREPLY=($(compgen -c -- "$word")) ;;
	esac
}

complete -F _usiw usiw
complete -o default -F _usiw_run usiw-run
