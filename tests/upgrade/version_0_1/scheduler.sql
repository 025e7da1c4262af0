BEGIN TRANSACTION;
CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY);
INSERT INTO "alembic_version" VALUES('0008');
CREATE TABLE audit (
	number INTEGER NOT NULL, 
	time_ms BIGINT NOT NULL, 
	actor VARCHAR(1000) NOT NULL, 
	action VARCHAR(64) NOT NULL, 
	object TEXT NOT NULL, 
	detail TEXT NOT NULL, 
	PRIMARY KEY (number)
);
CREATE TABLE events (
	number INTEGER NOT NULL, 
	workload VARCHAR(1000) NOT NULL, 
	time VARCHAR(64) NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	message TEXT NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "events" VALUES(1,'91565f63-a1a4-41d6-8a30-0600bd398128.vm.1795333809660','2026-11-22T07:50:47.443+00:00','requested','Asked for 0.5 GPU in project vision.');
INSERT INTO "events" VALUES(2,'91565f63-a1a4-41d6-8a30-0600bd398128.vm.1795333809660','2026-11-22T07:50:47.446+00:00','granted','Granted 0.5 GPU on vm.');
INSERT INTO "events" VALUES(3,'91565f63-a1a4-41d6-8a30-0600bd398128.vm.1795333809660','2026-11-22T07:50:47.449+00:00','attached','Attached to simulated GPU 0: 40 GiB guaranteed.');
INSERT INTO "events" VALUES(4,'2f7da0d0-2fc9-4085-b4b0-885dd2fd5471.vm.1795333809661','2026-11-22T07:50:47.509+00:00','requested','Asked for 1 GPU in project language.');
INSERT INTO "events" VALUES(5,'2f7da0d0-2fc9-4085-b4b0-885dd2fd5471.vm.1795333809661','2026-11-22T07:50:47.511+00:00','granted','Granted 1 GPU on vm.');
INSERT INTO "events" VALUES(6,'2f7da0d0-2fc9-4085-b4b0-885dd2fd5471.vm.1795333809661','2026-11-22T07:50:47.514+00:00','attached','Attached to simulated GPU 1: 80 GiB guaranteed.');
INSERT INTO "events" VALUES(7,'91565f63-a1a4-41d6-8a30-0600bd398128.vm.1795333809660','2026-11-22T07:50:47.648+00:00','suspended','Saved 10 GiB of GPU memory to host memory (as you asked); nothing is lost, it comes back when a cell needs it.');
INSERT INTO "events" VALUES(8,'823f24c4-9e42-456d-b398-1f1b7be19f5f.vm.1795333809662','2026-11-22T07:50:47.696+00:00','requested','Asked for 1 GPU in project course.');
INSERT INTO "events" VALUES(9,'8f2bbcc4-1029-42a4-b965-a7ee7ce08c90.vm.1795333809663','2026-11-22T07:50:47.796+00:00','requested','Asked for 0.25 GPU in project vision.');
INSERT INTO "events" VALUES(10,'8f2bbcc4-1029-42a4-b965-a7ee7ce08c90.vm.1795333809663','2026-11-22T07:50:47.798+00:00','granted','Granted 0.25 GPU on vm.');
INSERT INTO "events" VALUES(11,'8f2bbcc4-1029-42a4-b965-a7ee7ce08c90.vm.1795333809663','2026-11-22T07:50:47.801+00:00','attached','Attached to simulated GPU 0: 20 GiB guaranteed.');
INSERT INTO "events" VALUES(12,'8f2bbcc4-1029-42a4-b965-a7ee7ce08c90.vm.1795333809663','2026-11-22T07:50:47.807+00:00','pinned','Pinned: not suspended while idle; who needs its memory above the share gives notice first. It does not protect from rules that give an idle GPU back or end what runs for too long.');
CREATE TABLE history (
	number INTEGER NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	time_ms BIGINT NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "history" VALUES(1,'queues',1795333811829,'[{"queue":"course","kind":"project","pool":"default","quota":0,"fair_share":0,"allocated":0,"requested":0},{"queue":"language","kind":"project","pool":"default","quota":1000,"fair_share":0,"allocated":0,"requested":0},{"queue":"research","kind":"department","pool":"default","quota":2000,"fair_share":0,"allocated":0,"requested":0},{"queue":"teaching","kind":"department","pool":"default","quota":0,"fair_share":0,"allocated":0,"requested":0},{"queue":"vision","kind":"project","pool":"default","quota":1000,"fair_share":0,"allocated":0,"requested":0}]');
CREATE TABLE leadership (
	id INTEGER NOT NULL, 
	epoch BIGINT NOT NULL, 
	holder TEXT NOT NULL, 
	url TEXT NOT NULL, 
	renewed_ms BIGINT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE leases (
	id VARCHAR(1100) NOT NULL, 
	workload VARCHAR(1000) NOT NULL, 
	body TEXT NOT NULL, 
	started_ms BIGINT NOT NULL, 
	ended_ms BIGINT, 
	PRIMARY KEY (id)
);
INSERT INTO "leases" VALUES('91565f63-a1a4-41d6-8a30-0600bd398128.vm.1795333809660@e0d9d638','91565f63-a1a4-41d6-8a30-0600bd398128.vm.1795333809660','{"id":"91565f63-a1a4-41d6-8a30-0600bd398128.vm.1795333809660@e0d9d638","workload":"91565f63-a1a4-41d6-8a30-0600bd398128.vm.1795333809660","pod":"kernel","kernel_id":"91565f63-a1a4-41d6-8a30-0600bd398128","name":"first.ipynb","user":"root","project":"vision","node":"vm","pool":"default","planned_gpus":[0],"request_mib":40960,"limit_mib":81920,"request":{"gpu":0.5,"gpu_memory_mib":null},"limit":{"gpu":1.0,"gpu_memory_mib":null},"wanted":"hold","notice_ms":30000,"message":"","rules":{"idle_warn_ms":null,"idle_suspend_ms":null,"idle_release_ms":null,"idle_end_ms":null,"max_running_ms":null,"places":{}},"ends_at":null,"command":null}',1795333847445,NULL);
INSERT INTO "leases" VALUES('2f7da0d0-2fc9-4085-b4b0-885dd2fd5471.vm.1795333809661@ecf74404','2f7da0d0-2fc9-4085-b4b0-885dd2fd5471.vm.1795333809661','{"id":"2f7da0d0-2fc9-4085-b4b0-885dd2fd5471.vm.1795333809661@ecf74404","workload":"2f7da0d0-2fc9-4085-b4b0-885dd2fd5471.vm.1795333809661","pod":"kernel","kernel_id":"2f7da0d0-2fc9-4085-b4b0-885dd2fd5471","name":"second.ipynb","user":"root","project":"language","node":"vm","pool":"default","planned_gpus":[1],"request_mib":81920,"limit_mib":81920,"request":{"gpu":1.0,"gpu_memory_mib":null},"limit":{"gpu":1.0,"gpu_memory_mib":null},"wanted":"hold","notice_ms":30000,"message":"","rules":{"idle_warn_ms":null,"idle_suspend_ms":null,"idle_release_ms":null,"idle_end_ms":null,"max_running_ms":null,"places":{}},"ends_at":null,"command":null}',1795333847510,NULL);
INSERT INTO "leases" VALUES('8f2bbcc4-1029-42a4-b965-a7ee7ce08c90.vm.1795333809663@fa6f8610','8f2bbcc4-1029-42a4-b965-a7ee7ce08c90.vm.1795333809663','{"id":"8f2bbcc4-1029-42a4-b965-a7ee7ce08c90.vm.1795333809663@fa6f8610","workload":"8f2bbcc4-1029-42a4-b965-a7ee7ce08c90.vm.1795333809663","pod":"kernel","kernel_id":"8f2bbcc4-1029-42a4-b965-a7ee7ce08c90","name":"fourth.ipynb","user":"root","project":"vision","node":"vm","pool":"default","planned_gpus":[0],"request_mib":20480,"limit_mib":81920,"request":{"gpu":0.25,"gpu_memory_mib":null},"limit":{"gpu":1.0,"gpu_memory_mib":null},"wanted":"hold","notice_ms":30000,"message":"","rules":{"idle_warn_ms":null,"idle_suspend_ms":null,"idle_release_ms":null,"idle_end_ms":null,"max_running_ms":null,"places":{}},"ends_at":null,"command":null}',1795333847797,NULL);
CREATE TABLE logs (
	number INTEGER NOT NULL, 
	workload VARCHAR(1000) NOT NULL, 
	lease VARCHAR(1100) NOT NULL, 
	pod VARCHAR(1000) NOT NULL, 
	stop BIGINT NOT NULL, 
	text TEXT NOT NULL, 
	PRIMARY KEY (number)
);
CREATE TABLE meta (
	"key" VARCHAR(64) NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "meta" VALUES('revision','1795333810847');
CREATE TABLE node_marks (
	name VARCHAR(1000) NOT NULL, 
	cordoned BOOLEAN NOT NULL, 
	draining BOOLEAN NOT NULL, 
	actor VARCHAR(1000) NOT NULL, 
	since_ms BIGINT NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE nodes (
	name VARCHAR(1000) NOT NULL, 
	report TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "nodes" VALUES('vm','{"name":"vm","simulated":true,"devices":[{"index":0,"uuid":"SIM-GPU-vm-0","model":"Simulated A100-80GB","total_mib":81920,"used_mib":0,"healthy":true,"health":"","foreign_mib":0,"foreign_processes":0,"utilization":0.0,"mig":false},{"index":1,"uuid":"SIM-GPU-vm-1","model":"Simulated A100-80GB","total_mib":81920,"used_mib":0,"healthy":true,"health":"","foreign_mib":0,"foreign_processes":0,"utilization":0.0,"mig":false}],"tiers":["observe","cooperate","limit","suspend","relocate"],"tier_problems":{},"cpu_milli":0,"memory_mib":0,"labels":{},"reasons":[],"driver":""}');
CREATE TABLE outcomes (
	number INTEGER NOT NULL, 
	workload VARCHAR(1000) NOT NULL, 
	pod VARCHAR(1000) NOT NULL, 
	exit_code INTEGER NOT NULL, 
	ended_ms BIGINT NOT NULL, 
	PRIMARY KEY (number)
);
CREATE TABLE tokens (
	id VARCHAR(64) NOT NULL, 
	scope VARCHAR(16) NOT NULL, 
	name VARCHAR(1000) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	created_ms BIGINT NOT NULL, 
	expires_ms BIGINT, 
	revoked_ms BIGINT, 
	users TEXT DEFAULT '' NOT NULL, 
	groups TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (hash)
);
CREATE TABLE usage (
	lease VARCHAR(1100) NOT NULL, 
	project VARCHAR(1000) NOT NULL, 
	held_ms BIGINT NOT NULL, 
	busy_ms BIGINT NOT NULL, 
	used_mib_ms BIGINT NOT NULL, 
	borrowed_mib_ms BIGINT NOT NULL, 
	PRIMARY KEY (lease)
);
INSERT INTO "usage" VALUES('2f7da0d0-2fc9-4085-b4b0-885dd2fd5471.vm.1795333809661@ecf74404','language',19033,0,389795840,0);
INSERT INTO "usage" VALUES('8f2bbcc4-1029-42a4-b965-a7ee7ce08c90.vm.1795333809663@fa6f8610','vision',19033,0,0,0);
INSERT INTO "usage" VALUES('91565f63-a1a4-41d6-8a30-0600bd398128.vm.1795333809660@e0d9d638','vision',19033,0,0,0);
CREATE TABLE usage_hours (
	"key" VARCHAR(64) NOT NULL, 
	hour_ms BIGINT NOT NULL, 
	project VARCHAR(1000) NOT NULL, 
	user VARCHAR(1000) NOT NULL, 
	notebook VARCHAR(1000) NOT NULL, 
	held BIGINT NOT NULL, 
	used BIGINT NOT NULL, 
	borrowed BIGINT NOT NULL, 
	lent BIGINT NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "usage_hours" VALUES('ee20796a78f65c98d4344f8cc49745a7259c14f9242e4aba47ffec0c375f839f',1795330800000,'language','root','second.ipynb',19033,0,0,0);
INSERT INTO "usage_hours" VALUES('160dd7b3353fba816bedb45aa742a4d2e15e55f9c8d0e7b7aa2c90387b54ad1b',1795330800000,'vision','root','fourth.ipynb',4758,0,0,0);
INSERT INTO "usage_hours" VALUES('049fa23c65d8318f7503d63884a0c7ba848c7c8f1ff4a06e75c125ffba89420f',1795330800000,'vision','root','first.ipynb',9517,0,0,0);
CREATE TABLE usage_taken (
	node VARCHAR(1000) NOT NULL, 
	life VARCHAR(64) NOT NULL, 
	number BIGINT NOT NULL, 
	PRIMARY KEY (node)
);
INSERT INTO "usage_taken" VALUES('vm','2f14f2fee83b4ba695a8f00320351c56',4);
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
INSERT INTO "workloads" VALUES('91565f63-a1a4-41d6-8a30-0600bd398128.vm.1795333809660','{"id":"91565f63-a1a4-41d6-8a30-0600bd398128.vm.1795333809660","name":"first.ipynb","kernel_id":"91565f63-a1a4-41d6-8a30-0600bd398128","project":null,"pods":[{"name":"kernel","gpu":"0.5","gpu_memory":null,"gpu_devices":1,"gpu_limit":null,"cpu":0,"memory":0,"group":"","nodes":["vm"],"node_selector":{},"labels":{}}],"priority_class":null,"preemptible":null,"min_pods":null,"groups":[],"topology":null,"node_pools":[],"command":null,"user":null}','root','vision',75,1,'91565f63-a1a4-41d6-8a30-0600bd398128',1795333847441,NULL,'');
INSERT INTO "workloads" VALUES('2f7da0d0-2fc9-4085-b4b0-885dd2fd5471.vm.1795333809661','{"id":"2f7da0d0-2fc9-4085-b4b0-885dd2fd5471.vm.1795333809661","name":"second.ipynb","kernel_id":"2f7da0d0-2fc9-4085-b4b0-885dd2fd5471","project":"language","pods":[{"name":"kernel","gpu":"1.0","gpu_memory":null,"gpu_devices":1,"gpu_limit":null,"cpu":0,"memory":0,"group":"","nodes":["vm"],"node_selector":{},"labels":{}}],"priority_class":null,"preemptible":null,"min_pods":null,"groups":[],"topology":null,"node_pools":[],"command":null,"user":null}','root','language',75,1,'2f7da0d0-2fc9-4085-b4b0-885dd2fd5471',1795333847508,NULL,'');
INSERT INTO "workloads" VALUES('823f24c4-9e42-456d-b398-1f1b7be19f5f.vm.1795333809662','{"id":"823f24c4-9e42-456d-b398-1f1b7be19f5f.vm.1795333809662","name":"third.ipynb","kernel_id":"823f24c4-9e42-456d-b398-1f1b7be19f5f","project":"course","pods":[{"name":"kernel","gpu":"1.0","gpu_memory":null,"gpu_devices":1,"gpu_limit":null,"cpu":0,"memory":0,"group":"","nodes":["vm"],"node_selector":{},"labels":{}}],"priority_class":null,"preemptible":null,"min_pods":null,"groups":[],"topology":null,"node_pools":[],"command":null,"user":null}','root','course',75,1,'823f24c4-9e42-456d-b398-1f1b7be19f5f',1795333847696,NULL,'');
INSERT INTO "workloads" VALUES('8f2bbcc4-1029-42a4-b965-a7ee7ce08c90.vm.1795333809663','{"id":"8f2bbcc4-1029-42a4-b965-a7ee7ce08c90.vm.1795333809663","name":"fourth.ipynb","kernel_id":"8f2bbcc4-1029-42a4-b965-a7ee7ce08c90","project":null,"pods":[{"name":"kernel","gpu":"0.25","gpu_memory":null,"gpu_devices":1,"gpu_limit":null,"cpu":0,"memory":0,"group":"","nodes":["vm"],"node_selector":{},"labels":{}}],"priority_class":null,"preemptible":null,"min_pods":null,"groups":[],"topology":null,"node_pools":[],"command":null,"user":null}','root','vision',75,1,'8f2bbcc4-1029-42a4-b965-a7ee7ce08c90',1795333847795,NULL,'');
CREATE INDEX ix_workloads_kernel_id ON workloads (kernel_id);
CREATE INDEX ix_workloads_ended_ms ON workloads (ended_ms);
CREATE INDEX ix_workloads_project ON workloads (project);
CREATE INDEX ix_leases_workload ON leases (workload);
CREATE INDEX ix_leases_ended_ms ON leases (ended_ms);
CREATE INDEX ix_events_workload ON events (workload);
CREATE INDEX ix_usage_project ON usage (project);
CREATE INDEX ix_audit_time_ms ON audit (time_ms);
CREATE INDEX ix_history_time_ms ON history (time_ms);
CREATE INDEX ix_usage_hours_hour_ms ON usage_hours (hour_ms);
CREATE INDEX ix_outcomes_workload ON outcomes (workload);
CREATE INDEX ix_logs_lease ON logs (lease);
CREATE INDEX ix_logs_workload ON logs (workload);
COMMIT;
PRAGMA user_version=0;
