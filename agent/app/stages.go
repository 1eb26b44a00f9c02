package app

import (
	"github.com/fairlead/fairlead/agent/internal/client"
	"github.com/fairlead/fairlead/agent/internal/proxy"
	"github.com/fairlead/fairlead/agent/internal/store"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// inlet makes a Store what a client.Client puts its tables into.
type inlet struct{ *store.Store }

var _ client.Store = inlet{}

// Current implements client.Store.
func (i inlet) Current() (client.Version, bool) {
	v, ok := i.Store.Current()
	return client.Version(v), ok
}

// Put implements client.Store.
func (i inlet) Put(v client.Version, touched fwd.Changed) { i.Store.Put(store.Version(v), touched) }

// outlet makes a Store what a proxy.Loop takes its tables from. One goroutine uses it.
type outlet struct {
	*store.Store
	// last is what was taken last.
	last store.Version
}

var _ proxy.Source = (*outlet)(nil)

// Take implements proxy.Source.
func (o *outlet) Take() (proxy.Update, bool) {
	v, touched, ok := o.Store.Take()
	if ok {
		o.last = v
	}
	return proxy.Update{Table: v.Table, Epoch: v.Epoch, Revision: v.Revision, Cause: v.Cause, Touched: touched}, ok
}

// reportOf is what a controller is told of an Outcome.
func reportOf(o proxy.Outcome) *fairleadv1.Report {
	r := &fairleadv1.Report{Epoch: o.Epoch, Number: o.Revision, DurationMicros: uint64(max(0, o.Duration.Microseconds()))}
	if o.Err != nil {
		r.Error = o.Err.Error()
	}
	for _, n := range o.Notices {
		r.Notices = append(r.Notices, &fairleadv1.Notice{Namespace: n.Namespace, Name: n.Name, Reason: n.Reason, Message: n.Message})
	}
	return r
}
