package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/fairlead/fairlead/agent/internal/hostinfo"
	"github.com/fairlead/fairlead/agent/internal/statedir"
)

// formerFile, in the state folder, says what kernel parameters were before an agent changed them, for the clean-up.
const (
	formerFile  = "former-sysctls.json"
	formerBytes = 64 << 10
)

// former is one of them. It is given back only while the parameter still has the value that the agent gave it.
type former struct {
	Was string `json:"was"`
	Set string `json:"set"`
}

// rememberFormer adds what an agent has changed. What an earlier one has found stays, since it was there before both.
func rememberFormer(dir string, changed []hostinfo.Setting) error {
	if dir == "" || len(changed) == 0 {
		return nil
	}
	all, err := readFormer(dir)
	if err != nil {
		return err
	}
	for _, s := range changed {
		was := s.Former
		if earlier, known := all[s.Name]; known {
			was = earlier.Was
		}
		all[s.Name] = former{Was: was, Set: s.Value}
	}
	err = statedir.Write(dir, formerFile, func(w io.Writer) error { return json.NewEncoder(w).Encode(all) })
	if err != nil {
		return fmt.Errorf("remember former sysctls: %w", err)
	}
	return nil
}

// giveBackFormer restores what rememberFormer knows, and forgets it.
func giveBackFormer(dir string, sysctls hostinfo.Sysctls) error {
	if dir == "" {
		return nil
	}
	all, err := readFormer(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(all)) {
		now, err := sysctls.Get(name)
		if err == nil && now == all[name].Set {
			err = sysctls.Set(name, all[name].Was)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("give back sysctl %s: %w", name, err))
		}
	}
	if len(errs) > 0 || len(all) == 0 {
		return errors.Join(errs...)
	}
	if err := statedir.Remove(dir, formerFile); err != nil {
		return fmt.Errorf("forget former sysctls: %w", err)
	}
	return nil
}

// readFormer returns what is remembered; never nil without an error.
func readFormer(dir string) (map[string]former, error) {
	all := map[string]former{}
	text, err := statedir.Read(dir, formerFile, formerBytes)
	if errors.Is(err, os.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read former sysctls: %w", err)
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("read former sysctls: %s: %w", filepath.Join(dir, formerFile), err)
	}
	return all, nil
}
