package app

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/internal/checkpoint"
	"github.com/fairlead/fairlead/agent/internal/proxy"
	"github.com/fairlead/fairlead/agent/internal/store"
	"github.com/fairlead/fairlead/proto/fwd"
)

// checkpointInterval is the shortest time between two writes of the table to disk.
const checkpointInterval = 5 * time.Second

// checkpoints keep the table that the kernel took on disk, and are where a start finds it.
type checkpoints struct {
	cfg    Config
	tables *store.Store
	taken  *outlet
	// keeper is nil where no folder is given.
	keeper *checkpoint.Keeper
	// found is what the disk had, until it was offered; its Table is nil for nothing. rebooted: it is from another boot of
	// this node.
	found    checkpoint.Checkpoint
	rebooted bool
}

// openCheckpoints finds the table on disk and lets the store hold it, so that the first hello tells of it. What is wrong with
// the file is said and no reason to stop.
func (a agent) openCheckpoints(taken *outlet) *checkpoints {
	c := &checkpoints{cfg: a.cfg, tables: a.tables, taken: taken}
	if a.cfg.StateDir == "" {
		return c
	}
	log := a.cfg.Logger
	boot, err := checkpoint.BootID()
	if err != nil {
		log.Warn("a reboot cannot be told from a restart", slog.Any("error", err))
	}
	c.keeper = checkpoint.NewKeeper(checkpoint.Config{
		Dir: a.cfg.StateDir, Node: a.cfg.NodeName, BootID: boot, CAFile: a.cfg.Trust.APIServerCAFile, Interval: checkpointInterval,
		Metrics: checkpoint.NewMetrics(a.metrics.registry), Logger: log,
	})
	found, touched, err := checkpoint.Load(a.cfg.StateDir, checkpoint.Owner{Node: a.cfg.NodeName, Cluster: checkpoint.ReadCluster(a.cfg.Trust.APIServerCAFile)})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c
	case err != nil:
		log.Warn("the table on disk is not used", slog.Any("error", err))
		return c
	}
	c.found, c.rebooted = found, boot == "" || found.BootID != boot
	a.tables.Hold(store.Version{Table: found.Table, Epoch: found.Epoch, Revision: found.Revision}, touched)
	log.Info("a table was found on disk", slog.Uint64("revision", found.Revision), slog.Int("rows", found.Table.Len()),
		slog.Time("written", found.Written), slog.Bool("rebooted", c.rebooted))
	return c
}

// run makes the loop forward by the table on disk if no controller has sent one in time, and then keeps what comes.
func (c *checkpoints) run(ctx context.Context) {
	if c.keeper == nil {
		return
	}
	inTime := time.AfterFunc(c.cfg.CheckpointWait, c.offer)
	defer inTime.Stop()
	c.keeper.Run(ctx)
}

// offer is called once. It lets go of what was found: the store has what is needed.
func (c *checkpoints) offer() {
	found := c.found
	c.found = checkpoint.Checkpoint{}
	if found.Table == nil {
		return
	}
	table, differs := found.Table, fwd.Changed{}
	if c.rebooted {
		var err error
		if table, differs, err = checkpoint.WithoutLocal(found.Table); err != nil {
			c.cfg.Logger.Error("the table on disk is not used", slog.Any("error", err))
			return
		}
	}
	if c.tables.Offer(table, differs) {
		c.cfg.Logger.Warn("no controller answers, forwarding by the table on disk", slog.Time("written", found.Written),
			slog.Int("dropped_local_endpoints", found.Table.Len()-table.Len()))
	}
}

var _ proxy.Step = (*checkpoints)(nil)

// Name implements proxy.Step.
func (*checkpoints) Name() string { return "checkpoint" }

// Follow implements proxy.Step: the kernel holds the table that the loop took last. What came from the disk stays as it is
// there.
func (c *checkpoints) Follow(_ context.Context, _, now *fwd.Table, _ dataplane.Delta) ([]dataplane.Notice, error) {
	if v := c.taken.last; c.keeper != nil && v.Table == now && v.Epoch != 0 {
		c.keeper.Held(v.Epoch, v.Revision, now)
	}
	return nil, nil
}
