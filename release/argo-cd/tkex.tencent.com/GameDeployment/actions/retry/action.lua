for _, point in ipairs({ "preDelete", "preInplace", "postInplace" }) do
  local hook = obj.spec[point .. "UpdateStrategy"]
  if hook ~= nil and #(obj.status[point .. "HookCondition"] or {}) > 0 then
    hook.retry = true
  end
end
return obj
