local is_paused = (obj.spec.updateStrategy or {}).paused == true
return { ["resume"] = { disabled = not is_paused }, ["pause"] = { disabled = is_paused } }
