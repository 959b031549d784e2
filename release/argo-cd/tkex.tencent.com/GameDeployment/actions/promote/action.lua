-- If a sync has set `paused` to false already, that is not taken for a resumption. Then the pause itself says that it is over.
local strategy, status = obj.spec.updateStrategy, obj.status
local pause = (status.pauseConditions or {})[1]
if pause == nil then
  error("no canary step pauses the rollout")
elseif not strategy.paused then
  if obj.metadata.annotations == nil then
    obj.metadata.annotations = {}
  end
  obj.metadata.annotations["gamekeeper.tkex.tencent.com/pause"] = '{"revision":"' .. status.updateRevision
    .. '","stepHash":"' .. status.currentStepHash .. '","index":' .. status.currentStepIndex
    .. ',"reason":"' .. pause.reason .. '","time":"' .. pause.startTime .. '","over":true}'
end
strategy.paused = false
return obj
