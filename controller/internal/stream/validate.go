package stream

import (
	"fmt"
	"strings"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// Limits of what an agent may say, in bytes or elements: all of it is kept in memory, logged or shown to people.
const (
	maxName         = 253 // of a node, a namespace or a Service, as in RFC 1123
	maxWord         = 128 // version, mode, capability, reason
	maxCapabilities = 64
	maxNotices      = 64
	maxText         = 1024 // error, notice

	// maxRequest bounds a whole message: a Report with all notices at their limits.
	maxRequest = maxNotices*(2*maxName+maxWord+maxText+32) + maxText + 64
)

// checkHello returns INVALID_ARGUMENT with the field's name for what cannot be served.
func checkHello(h *fairleadv1.Hello) error {
	switch h.GetRole() {
	case fairleadv1.Hello_ROLE_AGENT:
		if err := checkName("hello.node", h.GetNode()); err != nil {
			return err
		}
	case fairleadv1.Hello_ROLE_REPLICA:
		if err := checkText("hello.node", h.GetNode(), maxName); err != nil {
			return err
		}
	default:
		return invalid(fmt.Sprintf("hello.role: %v: want ROLE_AGENT or ROLE_REPLICA", h.GetRole()))
	}
	if len(h.GetCapabilities()) > maxCapabilities {
		return invalid(fmt.Sprintf("hello.capabilities: %d: want at most %d", len(h.GetCapabilities()), maxCapabilities))
	}
	words := append([]string{h.GetVersion(), h.GetMode()}, h.GetCapabilities()...)
	for i, w := range words {
		field := []string{"hello.version", "hello.mode", "hello.capabilities"}[min(i, 2)]
		if err := checkText(field, w, maxWord); err != nil {
			return err
		}
	}
	return nil
}

// checkReport does the same for a report on a stream that has told of epochs from first to latest and sent revisions up to
// last.
func checkReport(r *fairleadv1.Report, first, latest, last uint64) error {
	if r.GetEpoch() > latest {
		return invalid(fmt.Sprintf("report.epoch: %d: this server's is %d", r.GetEpoch(), latest))
	}
	if r.GetEpoch() >= first && r.GetNumber() > last {
		return invalid(fmt.Sprintf("report.number: %d: %d is the last one sent", r.GetNumber(), last))
	}
	if err := checkText("report.error", r.GetError(), maxText); err != nil {
		return err
	}
	if len(r.GetNotices()) > maxNotices {
		return invalid(fmt.Sprintf("report.notices: %d: want at most %d", len(r.GetNotices()), maxNotices))
	}
	for _, n := range r.GetNotices() {
		if err := checkNotice(n); err != nil {
			return err
		}
	}
	return nil
}

func checkNotice(n *fairleadv1.Notice) error {
	if n.GetNamespace() != "" || n.GetName() != "" {
		if err := checkName("report.notices.namespace", n.GetNamespace()); err != nil {
			return err
		}
		if err := checkName("report.notices.name", n.GetName()); err != nil {
			return err
		}
	}
	if n.GetReason() == "" {
		return invalid("report.notices.reason: must not be empty")
	}
	if err := checkText("report.notices.reason", n.GetReason(), maxWord); err != nil {
		return err
	}
	return checkText("report.notices.message", n.GetMessage(), maxText)
}

// checkName accepts what Kubernetes accepts as the name of a Node, a Namespace or a Service: RFC 1123.
func checkName(field, name string) error {
	if name == "" || len(name) > maxName {
		return invalid(fmt.Sprintf("%s: %d characters: want 1 to %d", field, len(name), maxName))
	}
	for _, c := range name {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-.", c) {
			return invalid(fmt.Sprintf("%s: %q: want lower case letters, digits, '-' and '.'", field, name))
		}
	}
	return nil
}

func checkText(field, text string, most int) error {
	if len(text) > most {
		return invalid(fmt.Sprintf("%s: %d bytes: want at most %d", field, len(text), most))
	}
	return nil
}
