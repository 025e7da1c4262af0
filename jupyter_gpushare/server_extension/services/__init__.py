"""What the handlers and the provisioner call; `service` composes it.

* `kernel_service`, `request_service`, `table_service`, `status`: queries and commands of the pages
* `kernel_lifecycle`: what the provisioner reports
* `scheduler_follower`, `agent_events`, `kernel_sweep`: apply what scheduler, agent and Jupyter
  report
* `publisher`, `page_stream`: send changes to pages, the event bus and the agent
* `kernel_rpc` answers requests of kernels, `gang_service` those for clusters of workers;
  `relaunch` restarts kernels for the agent, `notebook_names` keeps kernels' names up to date,
  `gateway_names` adds them to those of a gateway
"""
