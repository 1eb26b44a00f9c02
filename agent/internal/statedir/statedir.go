// Package statedir keeps an agent's few files on disk whole: a reader finds the old content or the new, never a part.
//
// Input are a folder, a file's name and what writes its content; output is that file, mode 0600, on stable storage. Its
// neighbours are internal/checkpoint (the table) and internal/bootstrap (addresses and CA bundle), which know the contents
// and judge them; nothing here looks into a file.
package statedir

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// bufferBytes is how much is written at once.
const bufferBytes = 64 << 10

// Write replaces a file by what write writes. It makes the folder (mode 0700) where there is none. After an error, and after
// a crash at any point, the file is as it was; once Write has returned nil the new one survives a loss of power.
func Write(dir, name string, write func(io.Writer) error) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	path := filepath.Join(dir, name)
	fresh := path + ".new" // always the same name: what a crash leaves is overwritten
	if err := fill(fresh, write); err != nil {
		return errors.Join(err, remove(fresh))
	}
	if err := os.Rename(fresh, path); err != nil {
		return errors.Join(fmt.Errorf("replace file: %w", err), remove(fresh))
	}
	return syncDir(dir)
}

func fill(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("create file: %w", err)
	}
	buffer := bufio.NewWriterSize(f, bufferBytes)
	// The mode that OpenFile names counts for a file that it creates alone.
	for _, step := range []func() error{
		func() error { return f.Chmod(0o600) },
		func() error { return write(buffer) },
		buffer.Flush,
		f.Sync,
	} {
		if err := step(); err != nil {
			return errors.Join(fmt.Errorf("write %s: %w", path, err), f.Close())
		}
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	return nil
}

// Remove removes a file; none is no error.
func Remove(dir, name string) error {
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove file: %w", err)
	}
	return nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove unfinished file: %w", err)
	}
	return nil
}

// syncDir makes a rename durable.
func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the operator names the folder
	if err != nil {
		return fmt.Errorf("open folder: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync folder %s: %w", dir, err)
	}
	return nil
}

// Read returns a file's content. It refuses one of more than limit bytes and one that others than its owner may write: what
// is read is believed. The error wraps os.ErrNotExist where there is none.
func Read(dir, name string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("read file: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("read file %s: is no regular file", f.Name())
	case info.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("read file %s: mode %v lets others write it: want 0600", f.Name(), info.Mode().Perm())
	case info.Size() > limit:
		return nil, fmt.Errorf("read file %s: %d bytes: want at most %d", f.Name(), info.Size(), limit)
	}
	content := make([]byte, info.Size())
	if _, err := io.ReadFull(f, content); err != nil {
		return nil, fmt.Errorf("read file %s: %w", f.Name(), err)
	}
	return content, nil
}
