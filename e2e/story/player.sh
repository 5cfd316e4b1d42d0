# Plays a story: a text of commands and their output. Sourced by "run", which defines the commands.
# shellcheck shell=bash
#
#   $ command     is run once, and prints what follows
#   ~ command     is repeated until it prints what follows
#   # text        describes what happens
#
# What follows ends at an empty line. A command that fails adds the line "exit" with its status. Names, ages and versions
# that differ from one cluster to the next are replaced by what does not: see normalise.

STORY_PATIENCE=${STORY_PATIENCE:-60}

# play STORY DIR: DIR holds the mapping of names. With STORY_GO_ON set, all differences are shown, not only the first.
play() {
    local story=$1 dir=$2 line kind='' command='' expected='' number=0 at=0
    differences=0
    : >"$dir/names"
    while IFS= read -r line || [ -n "$line" ]; do
        number=$((number + 1))
        if [ -n "$kind" ] && [ -n "$line" ]; then
            expected+=$line$'\n'
            continue
        fi
        if [ -n "$kind" ]; then
            step "$kind" "$command" "$expected" "$story:$at" "$dir" || return 1
            kind=''
        fi
        case $line in
        '') ;;
        '# '*) say "${line#\# }" ;;
        '$ '* | '~ '*) kind=${line:0:1} command=${line:2} expected='' at=$number ;;
        *) fail "$story:$number: neither a command nor what one prints: $line" ;;
        esac
    done <"$story"
    [ -z "$kind" ] || step "$kind" "$command" "$expected" "$story:$at" "$dir" || return 1
    [ "$differences" = 0 ]
}

# step KIND COMMAND EXPECTED PLACE DIR
step() {
    local kind=$1 command=$2 expected=$3 place=$4 dir=$5 deadline=$((SECONDS + STORY_PATIENCE))
    printf '%s' "$expected" >"$dir/expected"
    while :; do
        run_command "$command" >"$dir/printed" 2>&1
        normalise "$dir/names" "$dir/names.new" <"$dir/printed" >"$dir/normalised"
        if cmp -s "$dir/expected" "$dir/normalised"; then
            mv "$dir/names.new" "$dir/names"
            return 0
        fi
        if [ "$kind" = '$' ] || [ "$SECONDS" -ge "$deadline" ]; then
            break
        fi
        sleep 0.2
    done
    say "$place: $command"
    diff -U 100 --label expected --label printed "$dir/expected" "$dir/normalised" | tail -n +4 >&2 || true
    differences=$((differences + 1))
    mv "$dir/names.new" "$dir/names"
    [ -n "${STORY_GO_ON:-}" ]
}

run_command() {
    local status=0
    (eval "$1") </dev/null || status=$?
    [ "$status" = 0 ] || echo "exit $status"
}

# normalise NAMES NEW-NAMES: rendered configs get numbers in the order in which the story meets them, per pool; columns are
# three spaces apart; ages, our version and the prefixes of an admission error are left out.
normalise() {
    awk -v names="$1" -v new_names="$2" -v version="$VERSION" '
        BEGIN {
            while ((getline known <names) > 0) {
                split(known, part, " ")
                number[part[1]] = part[2]
                if (part[2] + 0 > last[part[3]]) last[part[3]] = part[2] + 0
            }
            close(names)
            gsub(/\./, "[.]", version)
        }
        {
            sub(/admission webhook "[^"]*" denied the request: /, "")
            sub(/[a-z.]+ "[^"]*" is forbidden: /, "")
            gsub(/ +$/, "")
            rest = $0
            line = ""
            while (match(rest, /rendered-[a-z]+-[0-9a-f]+/)) {
                name = substr(rest, RSTART, RLENGTH)
                pool = name
                sub(/^rendered-/, "", pool)
                sub(/-[0-9a-f]+$/, "", pool)
                if (!(name in number)) number[name] = ++last[pool]
                line = line substr(rest, 1, RSTART - 1) "rendered-" pool "-<" number[name] ">"
                rest = substr(rest, RSTART + RLENGTH)
            }
            $0 = line rest
            gsub(version, "<version>")
            indent = match($0, /[^ ]/) ? substr($0, 1, RSTART - 1) : ""
            count = split(substr($0, length(indent) + 1), word, /   */)
            line = indent
            for (i = 1; i <= count; i++) {
                if (word[i] ~ /^([0-9]+[smhdy])+$/) word[i] = "<age>"
                line = line (i > 1 ? "   " : "") word[i]
            }
            print line
        }
        END {
            printf "" >new_names
            for (name in number) {
                pool = name
                sub(/^rendered-/, "", pool)
                sub(/-[0-9a-f]+$/, "", pool)
                print name, number[name], pool >new_names
            }
        }
    '
}
