-- The health of all kinds of Gamekeeper. The conditions Stalled and Reconciling exist only while they hold.
local status = obj.status or {}
if status.observedGeneration ~= obj.metadata.generation then
  return { status = "Progressing", message = "Gamekeeper has yet to observe the object, or to end the run" }
end

local conditions, pause = {}, nil
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
  if condition.reason == "Paused" or condition.reason == "PausedByCanaryPauseStep"
      or condition.reason == "ResumeByApplyIgnored" then
    pause = condition
  end
end

local ready = conditions.Ready or {}
if conditions.Stalled then
  return { status = "Degraded", message = conditions.Stalled.message }
elseif not conditions.Reconciling and ready.status ~= "False" then
  return { status = "Healthy", message = ready.message or status.message or "" }
elseif pause then
  return { status = "Suspended", message = pause.message }
end
return { status = "Progressing", message = (conditions.Reconciling or ready).message }
