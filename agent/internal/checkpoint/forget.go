package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Forget removes the checkpoint from a folder: from now on somebody else forwards, and a later start must not go by it. None is
// no error.
func Forget(dir string) error {
	if err := os.Remove(filepath.Join(dir, fileName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget checkpoint: %w", err)
	}
	return nil
}
