package bootstrap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Forget removes what is known of the controllers from a folder: those of a later installation have another CA. None is no error.
func Forget(dir string) error {
	if err := os.Remove(filepath.Join(dir, fileName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget controllers: %w", err)
	}
	return nil
}
