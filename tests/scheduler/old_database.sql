BEGIN TRANSACTION;
CREATE TABLE events (
	number INTEGER NOT NULL, 
	workload VARCHAR(1000) NOT NULL, 
	time VARCHAR(64) NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	message TEXT NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "events" VALUES(1,'w1','2026-01-02T03:04:05.000Z','requested','Asked for 0.5 GPU.');
INSERT INTO "events" VALUES(2,'w1','2026-01-02T03:04:05.000Z','granted','Granted 0.5 GPU on n0.');
CREATE TABLE leases (
	id VARCHAR(200) NOT NULL, 
	workload VARCHAR(1000) NOT NULL, 
	body TEXT NOT NULL, 
	started_ms BIGINT NOT NULL, 
	ended_ms BIGINT, 
	PRIMARY KEY (id)
);
INSERT INTO "leases" VALUES('w1@1','w1','{"id":"w1@1","workload":"w1","pod":"kernel","kernel_id":null,"name":"","user":"alice","project":"vision","node":"n0","pool":"default","planned_gpus":[0],"request_mib":40960,"limit_mib":81920,"request":{"gpu":0.5,"gpu_memory_mib":null},"limit":{"gpu":1.0,"gpu_memory_mib":null},"wanted":"hold","notice_ms":30000,"message":"","rules":{"idle_warn_ms":null,"idle_suspend_ms":null,"idle_release_ms":null,"idle_end_ms":null,"max_running_ms":null,"places":{}},"ends_at":null}',1500,NULL);
CREATE TABLE meta (
	"key" VARCHAR(64) NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "meta" VALUES('revision','41');
CREATE TABLE nodes (
	name VARCHAR(1000) NOT NULL, 
	report TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "nodes" VALUES('n0','{"name":"n0","simulated":true,"devices":[{"index":0,"uuid":"SIM-0","model":"Simulated","total_mib":81920,"used_mib":0,"healthy":true,"health":"","foreign_mib":0,"foreign_processes":0,"utilization":null,"mig":false}],"tiers":[],"tier_problems":{},"cpu_milli":0,"memory_mib":0,"labels":{},"reasons":[],"driver":""}');
CREATE TABLE tokens (
	id VARCHAR(64) NOT NULL, 
	scope VARCHAR(16) NOT NULL, 
	name VARCHAR(1000) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	created_ms BIGINT NOT NULL, 
	expires_ms BIGINT, 
	revoked_ms BIGINT, 
	PRIMARY KEY (id), 
	UNIQUE (hash)
);
INSERT INTO "tokens" VALUES('t1','person','alice','0000000000000000000000000000000000000000000000000000000000000000',1000,NULL,NULL);
CREATE TABLE usage (
	lease VARCHAR(200) NOT NULL, 
	project VARCHAR(1000) NOT NULL, 
	held_ms BIGINT NOT NULL, 
	busy_ms BIGINT NOT NULL, 
	used_mib_ms BIGINT NOT NULL, 
	borrowed_mib_ms BIGINT NOT NULL, 
	PRIMARY KEY (lease)
);
INSERT INTO "usage" VALUES('w1@1','vision',7,1,2,0);
CREATE TABLE workloads (
	id VARCHAR(1000) NOT NULL, 
	request TEXT NOT NULL, 
	user VARCHAR(1000) NOT NULL, 
	project VARCHAR(1000) NOT NULL, 
	priority INTEGER NOT NULL, 
	preemptible BOOLEAN NOT NULL, 
	kernel_id VARCHAR(1000), 
	created_ms BIGINT NOT NULL, 
	ended_ms BIGINT, 
	message TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "workloads" VALUES('w0','{"id":"w0","name":"","kernel_id":null,"project":"vision","pods":[{"name":"kernel","gpu":0.5,"gpu_memory":null,"gpu_devices":1,"gpu_limit":null,"cpu":0,"memory":0,"group":"","nodes":[],"node_selector":{},"labels":{}}],"priority_class":null,"preemptible":null,"min_pods":null,"groups":[],"topology":null,"node_pools":[],"user":null}','alice','vision',75,1,NULL,1000,2000,'Given back.');
INSERT INTO "workloads" VALUES('w1','{"id":"w1","name":"","kernel_id":null,"project":"vision","pods":[{"name":"kernel","gpu":0.5,"gpu_memory":null,"gpu_devices":1,"gpu_limit":null,"cpu":0,"memory":0,"group":"","nodes":[],"node_selector":{},"labels":{}}],"priority_class":null,"preemptible":null,"min_pods":null,"groups":[],"topology":null,"node_pools":[],"user":null}','alice','vision',75,1,NULL,1000,NULL,'');
CREATE INDEX ix_workloads_kernel_id ON workloads (kernel_id);
CREATE INDEX ix_workloads_ended_ms ON workloads (ended_ms);
CREATE INDEX ix_workloads_project ON workloads (project);
CREATE INDEX ix_leases_workload ON leases (workload);
CREATE INDEX ix_leases_ended_ms ON leases (ended_ms);
CREATE INDEX ix_events_workload ON events (workload);
CREATE INDEX ix_usage_project ON usage (project);
COMMIT;
