package scenario

// agentArguments marks a process that is an agent.
const agentArguments = "FAIRLEAD_SCENARIO_AGENT"

func runAgent() int { return 1 }
