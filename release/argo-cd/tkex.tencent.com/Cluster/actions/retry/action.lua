-- Each new value of the annotation starts one more attempt.
if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
obj.metadata.annotations["gamekeeper.tkex.tencent.com/retry"] = "resourceVersion " .. obj.metadata.resourceVersion
return obj
