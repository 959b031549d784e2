local strategy, status = obj.spec.updateStrategy or {}, obj.status or {}
local steps = (strategy.canary or {}).steps or {}
local step = steps[(status.currentStepIndex or #steps) + 1]
-- The pause of a step also holds the rollout while syncs set `paused` to false.
local is_paused_by_step = #(status.pauseConditions or {}) > 0
local is_paused = strategy.paused == true or is_paused_by_step
local has_duration = step ~= nil and step.pause ~= nil and step.pause.duration ~= nil
local is_rolling = status.observedGeneration == obj.metadata.generation
  and status.updateRevision ~= (status.canary or {}).revision
local can_promote = is_rolling and step ~= nil and is_paused == is_paused_by_step

local failed = false
for _, point in ipairs({ "preDelete", "preInplace", "postInplace" }) do
  failed = failed or #(status[point .. "HookCondition"] or {}) > 0
end

return {
  ["resume"] = { disabled = not is_paused },
  ["pause"] = { disabled = is_paused and not (is_paused_by_step and has_duration) },
  ["promote"] = { disabled = not (can_promote and is_paused) },
  ["promote-full"] = { disabled = not can_promote, displayName = "Promote fully" },
  ["retry"] = { disabled = not failed, displayName = "Retry failed hooks" },
  ["undo"] = { disabled = not is_rolling, displayName = "Roll back" },
}
