#!/bin/sh
# Removes the cordon of one operation and no other cordon. The annotation that it leaves makes a later drain of that
# operation end without effect. It is safe to run twice or late.
#
# Parameters of the document: NODE_NAME, OPERATION_ID. The last line is "result: WORD detail": uncordoned, not-cordoned,
# foreign-cordon, no-node (all exit status 0), bad-parameter (64), unreadable (69), busy (75).
# insert: parts/environment.sh

# insert: parts/node.sh

# insert: parts/cordon.sh

check_node_name
check_operation_id
take_lock 10

for attempt in 1 2 3; do
  read_node
  [ "$CORDONED" != absent ] || finish 0 "no-node $NODE_NAME"
  word="not-cordoned" detail="$NODE_NAME"
  marks='"node-fleet.io/undone":"'"$OPERATION_ID"'"' spec=""
  if [ "$OWNER" = "$OPERATION_ID" ]; then
    marks="$marks"',"node-fleet.io/cordoned-by":null,"node-fleet.io/cordoned-at":null'
    [ "$CORDONED" = no ] || word="uncordoned" spec=',"spec":{"unschedulable":null}'
  elif [ "$CORDONED" = yes ]; then
    word="foreign-cordon" detail="$OWNER"
  fi
  kubectl patch node "$NODE_NAME" --type merge -p '{"metadata":{"resourceVersion":"'"$VERSION"'","annotations":{'"$marks"'}}'"$spec"'}' &&
    finish 0 "$word $detail"
  echo "the API refused attempt $attempt of 3 to uncordon node $NODE_NAME" >&2
done
finish 69 "unreadable node $NODE_NAME could not be changed"
