# Metrics helpers; sourced by run, which has $work, $NAMESPACE, eventually and fail, and sets $scraper and $outsider: the
# tokens of an authorized and of an unauthorized client.
# shellcheck shell=bash disable=SC2154

# scrape COMPONENT PORT TOKEN [ARGUMENTS...]   as Prometheus would, with the component's name in the certificate
scrape() {
    local component=$1 port=$2 token=$3
    shift 3
    curl -sS --cacert "$work/metrics-ca.crt" --connect-to "::127.0.0.1:" ${token:+--header "Authorization: Bearer $token"} "$@" \
        "https://$component.$NAMESPACE.svc:$port/metrics"
}
tells() { scrape "$1" "$2" "$scraper" --fail | grep -F "$3"; }
# guarded COMPONENT PORT METRIC   the metric is served to the scraper only
guarded() {
    local component=$1 port=$2 status
    eventually "metrics of $component" tells "$@"
    while read -r who expected token; do
        status=$(scrape "$component" "$port" "$token" --output /dev/null --write-out '%{http_code}')
        [ "$status" = "$expected" ] || fail "$component answers $status to $who"
    done < <(printf '%s\n' "anonymous 401" "a-stranger 401 nonsense" "an-outsider 403 $outsider" "the-scraper 200 $scraper")
    status=$(curl -sS --header "Authorization: Bearer $scraper" --output /dev/null --write-out '%{http_code}' "http://127.0.0.1:$port/metrics")
    [ "$status" = 403 ] || fail "$component answers $status without TLS"
}

# lives PORT PATH   needs neither a token nor TLS
lives() { curl -fsS "http://127.0.0.1:$1/$2" | grep -Fx ok; }

# certify COMPONENT FILE   as the kubelet would, when the Secret has come or changed
certify() {
    local certificate key
    kubectl get secret --namespace "$NAMESPACE" "$1-metrics-tls" -o jsonpath='{.data.tls\.crt} {.data.tls\.key}' >"$2.pair" || return 1
    read -r certificate key <"$2.pair" || true
    base64 --decode <<<"$certificate" >"$2.crt"
    base64 --decode <<<"$key" >"$2.key"
}

# shown PORT   the certificate that is presented there
shown() { python3 -c 'import ssl, sys; print(ssl.get_server_certificate(("127.0.0.1", int(sys.argv[1]))), end="")' "$1"; }
shows() { [ "$(shown "$1")" = "$(cat "$2")" ]; }
