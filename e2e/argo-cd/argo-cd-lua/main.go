// Command argo-cd-lua runs a script of Argo CD's resource customizations on an object that it reads as JSON, under the
// conditions of Argo CD: the libraries package, base and table, for one second. It prints the table that the script
// returns as JSON or, for an action, the merge patch that Argo CD would send.
//
// usage: argo-cd-lua SCRIPT | argo-cd-lua --action SCRIPT
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	jsonpatch "github.com/evanphx/json-patch"
	lua "github.com/yuin/gopher-lua"
	luajson "layeh.com/gopher-json"
)

func main() {
	log.SetFlags(0)
	arguments := os.Args[1:]
	isAction := len(arguments) == 2 && arguments[0] == "--action"
	if isAction {
		arguments = arguments[1:]
	}
	if len(arguments) != 1 {
		log.Fatal("usage: argo-cd-lua [--action] SCRIPT <OBJECT")
	}
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		log.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		log.Fatal(err)
	}
	returned, err := run(arguments[0], object)
	if err != nil {
		log.Fatal(err)
	}
	if isAction {
		if returned, err = patch(text, object, returned); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(string(returned))
}

// run returns the table that the script returns, as JSON.
func run(script string, object map[string]any) ([]byte, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	libraries := []struct {
		name string
		open lua.LGFunction
	}{
		{lua.LoadLibName, lua.OpenPackage},
		{lua.BaseLibName, lua.OpenBase},
		{lua.TabLibName, lua.OpenTable},
	}
	for _, library := range libraries {
		call := lua.P{Fn: state.NewFunction(library.open), Protect: true}
		if err := state.CallByParam(call, lua.LString(library.name)); err != nil {
			return nil, err
		}
	}
	limit, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	state.SetContext(limit)
	state.SetGlobal("obj", luajson.DecodeValue(state, object))
	if err := state.DoFile(script); err != nil {
		return nil, err
	}
	table := state.Get(-1)
	if table.Type() != lua.LTTable {
		return nil, fmt.Errorf("%s returned a %s instead of a table", script, table.Type())
	}
	return luajson.Encode(table)
}

// patch returns the merge patch from an object to the one that an action returned.
func patch(text []byte, object map[string]any, returned []byte) ([]byte, error) {
	var changed map[string]any
	if err := json.Unmarshal(returned, &changed); err != nil {
		return nil, err
	}
	restoreEmptyMaps(changed, object)
	after, err := json.Marshal(changed)
	if err != nil {
		return nil, err
	}
	return jsonpatch.CreateMergePatch(text, after)
}

// restoreEmptyMaps makes a map of each empty list that was a map before, because an empty table of Lua can be both.
func restoreEmptyMaps(after, before any) {
	switch after := after.(type) {
	case map[string]any:
		before, _ := before.(map[string]any)
		for key, value := range after {
			if list, isList := value.([]any); isList && len(list) == 0 {
				if _, wasMap := before[key].(map[string]any); wasMap {
					after[key] = map[string]any{}
				}
				continue
			}
			restoreEmptyMaps(value, before[key])
		}
	case []any:
		before, _ := before.([]any)
		for index, value := range after {
			if index < len(before) {
				restoreEmptyMaps(value, before[index])
			}
		}
	}
}
