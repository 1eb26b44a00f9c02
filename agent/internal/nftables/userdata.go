package nftables

func setUserdata(s Set) []byte { return nil }
