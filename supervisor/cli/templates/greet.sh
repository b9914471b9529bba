# A module: it reads requests from stdin, line by line, and answers each with a line on stdout.
# What is for people goes to stderr (>&2): stdiod keeps it in the module's log.
#
# bash has no JSON. stdiod writes "requestId", "tool", "operation" and "op" first and without spaces, so
# they are found at the beginning of the line; a string is passed on as it stands there, with its escapes.
# For more than that, use jq, or another language.
export LC_ALL=C

string='"((\\.|[^"\\])*)"'

say() { printf '{"requestId":"%s",%s}\n' "$id" "$1"; }

greet() {
  [[ $args =~ \"name\":$string ]]
  say "\"ok\":true,\"result\":\"hello ${BASH_REMATCH[1]}\""
}

while IFS= read -r line; do
  head=${line:0:1000}
  [[ $head =~ ^\{\"requestId\":$string ]]
  id=${BASH_REMATCH[1]}
  case $head in
    *'"operation":"health"'*) say '"status":"ok"' ;;
    *'"operation":"describe"'*) say '"ok":true,"result":{}' ;; # all there is to say stands in module.json
    *'"input":{"op":"greet","args":'*) args=${line#*\"args\":} && greet ;;
    *) say '"ok":false,"error":{"code":"unsupported_op","message":"there is no such op"}' ;;
  esac
done
