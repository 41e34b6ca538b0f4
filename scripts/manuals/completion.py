# SPDX-License-Identifier: GPL-2.0-or-later
"""Completion for bash and zsh. One table of options and words serves both; what changes (jobs,
nodes, users) is asked of marketctl when the key is pressed."""
import re

import source

# A word in capitals in a help text stands for one of these kinds, wherever help uses it.
KINDS = {"ID": "jobs", "JOB": "jobs", "NODE": "nodes", "USER": "users", "FILE": "files",
         "PATH": "files", "DIR": "files", "PROGRAM": "commands"}
BY_OPTION = {"node": "nodes", "machine": "nodes", "provider": "nodes", "user": "users"}

SHELL = r"""
# Asks the market for names, one a line. Without a market it prints nothing.
_souk_ask() {
    local json
    json=$(timeout 2 marketctl --patience 0 --json "$@" 2>/dev/null) || return 0
    printf '%s\n' "$json"
}
_souk_jobs() {
    _souk_ask list-jobs | grep -o '"id":"[^"]*"' | cut -d '"' -f 4 | sort -u
}
_souk_nodes() {
    _souk_ask list-providers | grep -o '"node":"[^"]*"' | cut -d '"' -f 4 | sort -u
}
_souk_users() {
    _souk_ask user show | grep -o '"user":"[^"]*"' | cut -d '"' -f 4 | sort -u
}
"""


def kind(option):
    value = option["value"].strip("[]=")
    return BY_OPTION.get(option["name"]) or KINDS.get(value.split()[0] if value else "", "none")


def choices(words):
    """Lists what may stand at each place after a verb: literal words, or @KIND."""
    places = []
    for word in words.split():
        if re.fullmatch(r"\(\w+\)", word):
            places[-1] += " " + word.strip("()")
            continue
        said = [KINDS.get(part, "") if part.isupper() else part
                for part in word.strip("[]").split("|")]
        places.append(" ".join("@" + s if s in KINDS.values() else s for s in said if s))
    return places


def table(directory):
    """Lines of `case` for _souk_words: PROGRAM VERB N -> words and kinds."""
    first, rest, options, values = {}, {}, {}, []
    for name in [*source.COMMANDS, *source.DAEMONS]:
        app = source.program(directory, name)
        for command in source.flat(app):
            key = command["program"]
            options.setdefault(name, [])
            for o in command["options"]:
                names = ["-" + o["letter"]] * bool(o["letter"]) + ["--" + o["name"]] * bool(
                    o["name"])
                options[name] += [n for n in names if n not in options[name]]
                if o["value"] and not o["value"].startswith("["):
                    values += [(name, n, kind(o)) for n in names]
            if key != name:
                first.setdefault(name, []).append(key.split()[1])
        for verb in app.get("verbs", []):
            places = choices(verb["words"])
            first.setdefault(name, []).extend(places[0].split())
            for alias in places[0].split():
                for n, place in enumerate(places[1:], 1):
                    known = rest.setdefault((name, alias, n), [])
                    known += [w for w in place.split() if w not in known]
    return first, rest, options, values


def cases(directory):
    first, rest, options, values = table(directory)
    lines = [SHELL, "# _souk_options PROGRAM", "_souk_options() {", '    case "$1" in']
    lines += [f"    {name}) echo '{' '.join(all_)}' ;;" for name, all_ in options.items()]
    lines += ["    esac", "}", "", "# _souk_value PROGRAM OPTION: what its value is; nothing: it "
              "takes none", "_souk_value() {", '    case "$1 $2" in']
    by_kind = {}
    for name, option, what in values:
        by_kind.setdefault(what, []).append(f"'{name} {option}'")
    lines += [f"    {' | '.join(dict.fromkeys(all_))}) echo {what} ;;"
              for what, all_ in by_kind.items()]
    lines += ["    esac", "}", "",
              "# _souk_words PROGRAM PLACE [VERB]: the words that may stand there, or @KIND",
              "_souk_words() {", '    case "$1 $2 $3" in']
    lines += [f"    '{name} 0 ') echo '{' '.join(dict.fromkeys(all_))}' ;;"
              for name, all_ in first.items()]
    lines += ["    'srun 0 ') echo @commands ;;"]
    lines += [f"    '{name} {n} {verb}') echo '{' '.join(all_)}' ;;"
              for (name, verb, n), all_ in rest.items() if all_]
    lines += ["    esac", "}"]
    return "\n".join(lines) + "\n"


PLACE = r"""
# Prints how many words stand before the cursor, without options, and the verb:
# _souk_place PROGRAM WORD...
_souk_place() {
    local program=$1 verb='' place=0 word skip=''
    shift
    for word; do
        if [ -n "$skip" ]; then skip=''; continue; fi
        case $word in
        -*=*) ;;
        -*) skip=$(_souk_value "$program" "$word") ;;
        *) if [ "$place" = 0 ]; then verb=$word; fi; place=$((place + 1)) ;;
        esac
    done
    if [ "$place" = 0 ]; then verb=''; fi
    printf '%s %s\n' "$place" "$verb"
}
# Prints what may come after these words: _souk_next PROGRAM WORD-BEFORE... It prints a word a line,
# and @KIND for files and programs, which the shell completes by itself.
_souk_next() {
    local program=$1 last='' place verb word all
    for word; do last=$word; done
    all=$(_souk_value "$program" "$last")
    if [ -n "$all" ]; then
        all=@$all
    else
        place=$(_souk_place "$@")
        verb=${place#* }
        place=${place%% *}
        all=$(_souk_words "$program" "$place" "$verb")
    fi
    for word in $(printf '%s' "$all"); do
        case $word in
        @jobs) _souk_jobs ;;
        @nodes) _souk_nodes ;;
        @users) _souk_users ;;
        *) printf '%s\n' "$word" ;;
        esac
    done
}
"""

BASH = r"""
_souk() {
    local program=${1##*/} current=$2 words word all=()
    program=${program#souk-srun}
    program=${program:-srun}
    words=("${COMP_WORDS[@]:1:COMP_CWORD-1}")
    COMPREPLY=()
    if [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_souk_options "$program")" -- "$current")
        return
    fi
    while read -r word; do
        case $word in
        @files) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$current") ;;
        @commands) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -c -- "$current") ;;
        @*) ;;
        *) all+=("$word") ;;
        esac
    done < <(_souk_next "$program" "${words[@]}")
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -W "${all[*]}" -- "$current")
}
"""

ZSH = r"""
_souk() {
    emulate -L zsh
    setopt sh_word_split
    local program=${words[1]:t} word
    local -a all
    [[ $program == souk-srun ]] && program=srun
    if [[ ${words[CURRENT]} == -* ]]; then
        all=(${(s: :)$(_souk_options $program)})
        compadd -a all
        return
    fi
    for word in $(_souk_next $program ${words[2,CURRENT-1]}); do
        case $word in
        @files) _files ;;
        @commands) _command_names ;;
        @*) ;;
        *) all+=($word) ;;
        esac
    done
    compadd -a all
}
_souk "$@"
"""


def write(directory, bash, zsh):
    bash.mkdir(parents=True, exist_ok=True)
    zsh.mkdir(parents=True, exist_ok=True)
    names = [*source.COMMANDS, *source.DAEMONS]
    shared = cases(directory) + PLACE
    made = "# Made by scripts/manuals from what the programs say; do not edit.\n"
    (bash / "souk").write_text(made + shared + BASH +
                               f"complete -F _souk {' '.join(names)} souk-srun\n")
    (zsh / "_souk").write_text(f"#compdef {' '.join(names)} souk-srun\n" + made + shared + ZSH)
    for name in [*names, "souk-srun"]:
        link = bash / name
        if name != "souk":
            link.unlink(missing_ok=True)
            link.symlink_to("souk")
