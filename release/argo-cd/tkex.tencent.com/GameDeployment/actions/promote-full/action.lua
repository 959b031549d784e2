-- The annotation names the rollout and its steps, so that it does not apply to a later one.
local strategy, status = obj.spec.updateStrategy, obj.status
if strategy.paused and #(status.pauseConditions or {}) == 0 then
  error("a user has paused the rollout: resume it first")
end
if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
obj.metadata.annotations["gamekeeper.tkex.tencent.com/promote"] = '{"revision":"' .. status.updateRevision
  .. '","stepHash":"' .. status.currentStepHash .. '"}'
if strategy.paused then
  strategy.paused = false
end
return obj
