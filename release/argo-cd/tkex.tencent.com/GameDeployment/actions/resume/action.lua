obj.spec.updateStrategy.paused = false
return obj
