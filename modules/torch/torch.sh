#!/usr/bin/env bash
# torch: a Spec 001 tool in plain bash, no jq. One process per request: it may read one
# line of JSON from stdin, writes one event per line to stdout, and exits 0 after its `done`.
#
#   bash torch.sh </dev/null                                          lights the torch
#   echo '{"operation":"douse","input":{"room":"hall"}}' | bash torch.sh

export LC_ALL=C # count bytes, not characters: UTF-8 text then passes through untouched

operation='"light"' room='' id=''

emit() { printf '{"version":"0","type":"%s",%s%s}\n' "$1" "$2" "$id"; }

refuse() { # a controlled failure: an `error` event, then `done` with ok false, and still exit 0
  emit error "\"errorCode\":\"$1\",\"errorMessage\":\"$2\""
  emit done "\"ok\":false,\"summary\":\"$2\""
  exit 0
}

# Walk the line token by token and keep the few values we want. They are kept as *raw JSON tokens*,
# quotes and escapes included, so they can be put into the answer without unescaping or escaping.
# A pattern such as s/.*"room":"\(.*\)".*/ would be fooled by a string that contains one.
token='^[[:space:]]*([][{}:,]|"([^"\]|\\.)*"|[^][{}:,"[:space:]]+)'
scan() {
  local rest=$1 depth=0 under='' key='' last='' t
  while [[ $rest =~ $token ]]; do
    t=${BASH_REMATCH[1]} rest=${rest:${#BASH_REMATCH[0]}}
    case $t in
      '{' | '[') depth=$((depth + 1)); [ $depth = 2 ] && under=$key; key='' ;;
      '}' | ']') depth=$((depth - 1)); [ $depth = 1 ] && under=''; key='' ;;
      :) key=$last ;;
      ,) key='' ;;
      *)
        last=$t
        case $depth$under$key in # quotes are part of the keys, so they cannot run into each other
          '1"operation"') operation=$t ;;
          '1"requestId"') [ "${t:0:1}" = '"' ] && id=",\"requestId\":$t" ;;
          '2"input""room"') room=$t ;;
        esac
        ;;
    esac
  done
  [[ $depth = 0 && $rest =~ ^[[:space:]]*$ ]] # false: the line ended early, or is not JSON
}

# Input is optional (Spec 001 section 6): stdin may be a terminal, closed, or silent for ever.
# `read` also returns false for a last line without a newline, but fills the variable: look at that.
line=''
[ -t 0 ] || IFS= read -r -t 5 line
if [[ -n $line ]]; then
  [[ $line =~ ^[[:space:]]*\{ ]] && scan "$line" || refuse bad_request 'The input is not one JSON object.'
fi
[[ -z $room || $room = '"'* ]] || refuse bad_request 'room must be a string.'

case $operation in
  '"light"') lit=true summary='Torch lit.' ;;
  '"douse"') lit=false summary='Torch doused.' ;;
  *) refuse unsupported_op 'torch can only light and douse.' ;;
esac

emit log '"level":"info","message":"Starting"'
emit state_patch "\"patch\":{\"flags\":{\"torchLit\":$lit}${room:+,\"torchRoom\":$room}}"
emit done "\"ok\":true,\"summary\":\"$summary\""
