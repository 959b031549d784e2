module gamekeeper/e2e/argo-cd

go 1.26.0

tool gamekeeper/e2e/argo-cd/argo-cd-lua

require (
	github.com/evanphx/json-patch v5.9.11+incompatible
	github.com/yuin/gopher-lua v1.1.2
	layeh.com/gopher-json v0.0.0-20190114024228-97fed8db8427
)
