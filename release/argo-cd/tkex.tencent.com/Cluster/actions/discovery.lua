local failed = false
for _, condition in ipairs((obj.status or {}).conditions or {}) do
  failed = failed or condition.type == "Stalled"
end
local is_paused = obj.spec.paused == true
return {
  ["resume"] = { disabled = not is_paused },
  ["pause"] = { disabled = is_paused },
  ["retry"] = { disabled = not failed, displayName = "Retry the failed script" },
}
