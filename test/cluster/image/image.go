// Package image makes container images without a registry and without a builder.
//
// Input: a name and the files of one layer, such as a static executable. Output: a
// docker archive, which `ctr images import` and `docker load` read. Package cluster
// loads such archives into its nodes.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
)

// Spec describes an image of one layer.
type Spec struct {
	Name       string            // reference with a tag, such as localhost/fairlead/workload:dev
	Files      map[string]string // absolute path in the image -> file on this machine; all become executable
	Entrypoint []string
}

// Write makes the archive of spec at the path archive. Equal input gives equal bytes.
func Write(archive string, spec Spec) (err error) {
	layer, err := layerOf(spec.Files)
	if err != nil {
		return fmt.Errorf("pack layer of %s: %w", spec.Name, err)
	}
	config, err := configOf(spec, layer)
	if err != nil {
		return fmt.Errorf("describe image %s: %w", spec.Name, err)
	}
	manifest, err := json.Marshal([]map[string]any{{
		"Config":   "config.json",
		"RepoTags": []string{spec.Name},
		"Layers":   []string{"layer.tar"},
	}})
	if err != nil {
		return fmt.Errorf("describe archive of %s: %w", spec.Name, err)
	}
	var content bytes.Buffer
	out := tar.NewWriter(&content)
	for _, entry := range []struct {
		name string
		data []byte
	}{{"manifest.json", manifest}, {"config.json", config}, {"layer.tar", layer}} {
		if err := addFile(out, entry.name, bytes.NewReader(entry.data), int64(len(entry.data))); err != nil {
			return fmt.Errorf("write archive of %s: %w", spec.Name, err)
		}
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("write archive of %s: %w", spec.Name, err)
	}
	if err := os.WriteFile(archive, content.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write archive of %s: %w", spec.Name, err)
	}
	return nil
}

// layerOf packs the files, with the folders they need and a /tmp, sorted by path.
func layerOf(files map[string]string) ([]byte, error) {
	var content bytes.Buffer
	out := tar.NewWriter(&content)
	folders := map[string]int64{"tmp/": 0o1777, "etc/": 0o755}
	for name := range files {
		for dir := path.Dir(name); dir != "/" && dir != "."; dir = path.Dir(dir) {
			folders[dir[1:]+"/"] = 0o755
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(folders)) {
		header := &tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: folders[dir], Format: tar.FormatPAX}
		if err := out.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("add folder %s: %w", dir, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := addPath(out, name[1:], files[name]); err != nil {
			return nil, err
		}
	}
	if err := out.Close(); err != nil {
		return nil, fmt.Errorf("finish layer: %w", err)
	}
	return content.Bytes(), nil
}

func addPath(out *tar.Writer, name, source string) error {
	file, err := os.Open(source)
	if err != nil {
		return fmt.Errorf("open %s: %w", source, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("read %s: %w", source, err)
	}
	return addFile(out, name, file, info.Size())
}

func addFile(out *tar.Writer, name string, from io.Reader, size int64) error {
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: size, Format: tar.FormatPAX}); err != nil {
		return fmt.Errorf("add %s: %w", name, err)
	}
	if _, err := io.Copy(out, from); err != nil {
		return fmt.Errorf("add %s: %w", name, err)
	}
	return nil
}

// configOf is the image's configuration, as the OCI image specification has it.
func configOf(spec Spec, layer []byte) ([]byte, error) {
	return json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config": map[string]any{
			"Entrypoint": spec.Entrypoint,
			"Env":        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		},
		"rootfs": map[string]any{
			"type":     "layers",
			"diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))},
		},
	})
}
