# What differs between two moments of a cluster, and whether docs/switch.md lists it. Sourced by "run".
# shellcheck shell=bash

KINDS=customresourcedefinitions,namespaces,nodes,controllerconfigs,machineconfigs,machineconfigpools,machineconfignodes,machineconfigurations.operator.openshift.io,kubeletconfigs,containerruntimeconfigs,clusteroperators,clusterversions,images.config.openshift.io,imagedigestmirrorsets,secrets,configmaps,serviceaccounts,services,deployments,daemonsets,roles,rolebindings,clusterroles,clusterrolebindings,networkpolicies,validatingadmissionpolicies,validatingadmissionpolicybindings,validatingwebhookconfigurations

# dump DIR   every field of every object, one per line
dump() {
    kubectl get "$KINDS" --all-namespaces -o json >"$1/objects.json"
    jq -r '.items[]
        | select(.metadata.name | test("^system:|^kubernetes$|^kube-root-ca.crt$|^extension-apiserver|^default$") | not)
        | "\(.kind)/\(.metadata.name)" as $id
        | del(.metadata.managedFields, .metadata.resourceVersion, .metadata.generation, .metadata.creationTimestamp)
        | if .kind == "Deployment" then del(.metadata.uid, .status) else . end
        | if .kind == "MachineConfigPool" then .spec.paused //= false else . end
        | paths((type | . != "object" and . != "array") or . == [] or . == {}) as $path
        | "\($id) \($path | map(tostring) | join(".")) = \(getpath($path) | tojson)"' "$1/objects.json" | LC_ALL=C sort >"$1/fields"
    cut -d' ' -f1 "$1/fields" | uniq >"$1/ids"
}

# differences BEFORE AFTER   "~ OBJECT FIELD was -> is"; "+ OBJECT" and "- OBJECT" for whole objects
differences() {
    LC_ALL=C comm -13 "$1/ids" "$2/ids" | sed 's/^/+ /'
    LC_ALL=C comm -23 "$1/ids" "$2/ids" | sed 's/^/- /'
    awk -v before="$1" -v after="$2" '
        function read_all(file, fields,   line, at) {
            while ((getline line < file) > 0) {
                at = index(line, " = ")
                fields[substr(line, 1, at - 1)] = substr(line, at + 3)
            }
        }
        function short(value) { return length(value) > 60 ? substr(value, 1, 57) "..." : value }
        BEGIN {
            read_all(before "/fields", was); read_all(after "/fields", now)
            while ((getline id < (before "/ids")) > 0) known[id] = 1
            while ((getline id < (after "/ids")) > 0) known[id]++
            for (field in was) if (!(field in now) || was[field] != now[field]) changed[field] = 1
            for (field in now) if (!(field in was)) changed[field] = 1
            for (field in changed) {
                split(field, parts, " ")
                if (known[parts[1]] < 2) continue
                print "~ " field "  " (field in was ? short(was[field]) : "(absent)") " -> " (field in now ? short(now[field]) : "(absent)")
            }
        }' | LC_ALL=C sort
}

# allowed WHEN...   the matching rows of the table in docs/switch.md: pattern of the object, pattern of the field
allowed() {
    local when
    when=$(IFS='|' && echo "$*")
    sed -nE 's/^\| `([A-Z*][^`]*)` \| (`[^`]*`|made|deleted) \| ('"$when"') \|.*/\1 \2/p' docs/switch.md | tr -d '`'
}

# nothing_forbidden FILE WHEN...   every difference in it is listed
nothing_forbidden() {
    local sign id field object what forbidden=0 found file=$1
    shift
    allowed "$@" >"$work/allowed"
    [ -s "$work/allowed" ] || fail "docs/switch.md lists nothing"
    while read -r sign id field _; do
        case $sign in
            +) field=made ;;
            -) field=deleted ;;
        esac
        found=
        while read -r object what; do
            # Patterns, not texts.
            # shellcheck disable=SC2053
            if [[ $id == $object && $field == $what ]]; then
                found=yes
                break
            fi
        done <"$work/allowed"
        [ -n "$found" ] || {
            say "not listed in docs/switch.md: $sign $id $field"
            forbidden=$((forbidden + 1))
        }
    done <"$file"
    [ "$forbidden" = 0 ] || fail "$forbidden differences that are not listed"
}

# no_new_name   pools, rendered configs and nodes are as they were
no_new_name() {
    local now
    now=$(jq -r '.items[] | select(.kind == "MachineConfig") | .metadata.name' "$work/before/objects.json")
    [ "$(kubectl get machineconfigs -o jsonpath='{range .items[*]}{.metadata.name}{"\n"}{end}')" = "$now" ] ||
        fail "there are other MachineConfigs than before"
    nodes_of() { jq -S --arg prefix "$PREFIX" '[.items[] | select(.kind == "Node") | {name: .metadata.name, spec,
        annotations: (.metadata.annotations | with_entries(select(.key | test("Config$|Drain$|state$|reason$"))))}]' "$1"; }
    kubectl get nodes -o json >"$work/nodes.now"
    [ "$(nodes_of "$work/before/objects.json")" = "$(nodes_of "$work/nodes.now")" ] || fail "a node was touched"
    say "no new rendered name, and no node was touched"
}
