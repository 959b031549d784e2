-- The operator restores the stable template, because an action sees no revisions.
if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
obj.metadata.annotations["gamekeeper.tkex.tencent.com/undo"] = obj.status.updateRevision
return obj
