if #(obj.status.pauseConditions or {}) == 0 then
  error("no canary step pauses the rollout")
end
obj.spec.updateStrategy.paused = false
return obj
