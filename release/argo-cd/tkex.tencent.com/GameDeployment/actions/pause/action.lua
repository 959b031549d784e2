-- Without the annotation, the pause of a canary step is one of the user, which does not end by itself.
if obj.spec.updateStrategy == nil then
  obj.spec.updateStrategy = {}
end
obj.spec.updateStrategy.paused = true
if obj.metadata.annotations ~= nil then
  obj.metadata.annotations["gamekeeper.tkex.tencent.com/pause"] = nil
end
return obj
