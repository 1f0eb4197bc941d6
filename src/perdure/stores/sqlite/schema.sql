-- The schema of a SQLite store, version 3. Instants are microseconds since 1970-01-01T00:00Z, ids of
-- executions their 16 bytes.

-- "perd": says that a file is ours before anything in it is read.
PRAGMA application_id = 1885696612;
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('schema_version', 3);

-- Where code ran and who acted: interned, so that a row names them by a small number.
CREATE TABLE sites (id INTEGER PRIMARY KEY, body BLOB NOT NULL UNIQUE);
CREATE TABLE actors (id INTEGER PRIMARY KEY, body BLOB NOT NULL UNIQUE);

CREATE TABLE sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    site INTEGER NOT NULL,
    ttl REAL,                       -- seconds; NULL for a session that owns nothing and never beats
    beat INTEGER NOT NULL DEFAULT 0,
    live INTEGER NOT NULL DEFAULT 1,
    batch_no INTEGER NOT NULL DEFAULT 0,
    committed BLOB,                 -- the answer to the last batch, for one that asks again
    seen_batch_no INTEGER NOT NULL DEFAULT 0,   -- when somebody last looked whether it is idle
    used_at INTEGER NOT NULL
);

CREATE TABLE executions (
    eid BLOB PRIMARY KEY,
    workflow TEXT NOT NULL,
    version TEXT NOT NULL,
    queue TEXT NOT NULL,
    args BLOB NOT NULL,
    seed BLOB NOT NULL,
    options BLOB NOT NULL,
    priority INTEGER NOT NULL,
    dispatch_key TEXT,
    created_by INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    status TEXT NOT NULL,
    owner INTEGER,                  -- the session that owns it, while one does
    epoch INTEGER NOT NULL DEFAULT 0,
    wake INTEGER NOT NULL DEFAULT 0,
    started_at INTEGER,
    ended_at INTEGER,
    updated_at INTEGER NOT NULL,
    suspended_on TEXT,              -- JSON list
    blocked TEXT,
    result BLOB,
    error_type TEXT,
    error_message TEXT,
    parent BLOB,                    -- the execution and the frame that started it
    parent_fid TEXT,
    on_parent_cancel TEXT NOT NULL,
    next_version TEXT,              -- takes the place of version at the next acquisition
    continued_as BLOB,
    expires_at INTEGER,             -- when it is terminated, if it may not take for ever
    stop_by INTEGER,                -- who asked for its cancel, or terminated it
    stop_reason TEXT
);
-- The sweeper terminates them in this order, and asks for the first.
CREATE INDEX executions_expiring ON executions (expires_at, eid)
WHERE expires_at IS NOT NULL AND ended_at IS NULL;
-- Lists show the newest first.
CREATE INDEX executions_created ON executions (created_at, eid);
-- Terminate descends to the open children; a list shows all of one parent.
CREATE INDEX executions_parent ON executions (parent, eid) WHERE parent IS NOT NULL;
-- A beat lists what its session owns; an expiry takes it all. Few rows have an owner.
CREATE INDEX executions_owner ON executions (owner) WHERE owner IS NOT NULL;
-- The sweeper looks for those without a task. Few are pending, millions may have ended.
CREATE INDEX executions_pending ON executions (eid) WHERE status = 'pending';

CREATE TABLE journal (
    eid BLOB NOT NULL,
    seq INTEGER NOT NULL,           -- the number of the first entry of the row
    count INTEGER NOT NULL,         -- how many entries it holds
    epoch INTEGER NOT NULL,
    site INTEGER NOT NULL,
    body BLOB NOT NULL,             -- the entries, packed
    PRIMARY KEY (eid, seq)
) WITHOUT ROWID;

CREATE TABLE control (
    position INTEGER PRIMARY KEY,
    eid BLOB NOT NULL,
    type TEXT NOT NULL,
    at INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    body BLOB NOT NULL
);

CREATE TABLE tasks (
    id INTEGER PRIMARY KEY,
    eid BLOB NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL DEFAULT '',   -- '' for the START and the RESUME, of which there is one each
    queue TEXT NOT NULL,
    workflow TEXT NOT NULL,         -- of a run_step: the name of the step
    version TEXT NOT NULL,
    priority INTEGER NOT NULL,
    reason TEXT NOT NULL,
    not_before INTEGER,             -- NULL once it is ready
    enqueued_at INTEGER NOT NULL,
    -- What follows belongs to tasks that a frame has enqueued; they are held under a lease.
    fid TEXT,
    payload BLOB,
    holder TEXT,                    -- who holds the lease, while one does
    epoch INTEGER NOT NULL DEFAULT 0,   -- how often it was dequeued
    ttl REAL,                       -- seconds; NULL if the lease lasts as long as the holder's session
    renewal INTEGER NOT NULL DEFAULT 0,
    renewed_at INTEGER,
    state BLOB,                     -- what its holders keep in it
    stop INTEGER NOT NULL DEFAULT 0,    -- whether its holder is asked to stop
    UNIQUE (eid, kind, key, queue)  -- a second enqueue of a task that is still there is a no-op
);
-- The order in which a dequeue takes them; what is delayed, or is for others, is not in its way.
CREATE INDEX tasks_ready ON tasks (queue, priority, id) WHERE not_before IS NULL AND fid IS NULL;
-- The same for those that a frame has enqueued.
CREATE INDEX tasks_enqueued ON tasks (queue, kind, priority, id)
WHERE not_before IS NULL AND fid IS NOT NULL AND holder IS NULL;
-- Whoever holds tasks finds them again; the sweeper watches their renewals.
CREATE INDEX tasks_held ON tasks (holder) WHERE holder IS NOT NULL;
-- What the sweeper promotes next.
CREATE INDEX tasks_delayed ON tasks (not_before) WHERE not_before IS NOT NULL;

CREATE TABLE channels (
    eid BLOB NOT NULL,
    name TEXT NOT NULL,
    last_seq INTEGER NOT NULL,
    consumed INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (eid, name)
) WITHOUT ROWID;
-- A look reads the channels with something unread; an execution may have thousands that it has read.
CREATE INDEX channels_unread ON channels (eid, name) WHERE last_seq > consumed;

-- The channels that no execution owns belong to the id of sixteen zero bytes.

CREATE TABLE messages (
    eid BLOB NOT NULL,
    channel TEXT NOT NULL,
    seq INTEGER NOT NULL,
    sent_by INTEGER NOT NULL,
    sent_at INTEGER NOT NULL,
    correlation TEXT,
    payload BLOB NOT NULL,
    PRIMARY KEY (eid, channel, seq)
) WITHOUT ROWID;

CREATE TABLE timers (
    eid BLOB NOT NULL,
    timer_id TEXT NOT NULL,
    due INTEGER NOT NULL,
    PRIMARY KEY (eid, timer_id)
) WITHOUT ROWID;
-- The sweeper fires them in this order, and asks for the first.
CREATE INDEX timers_due ON timers (due, eid);

-- Who is to be woken by a message on a global channel. Only suspended executions are here.
CREATE TABLE waiters (
    channel TEXT NOT NULL,
    eid BLOB NOT NULL,
    PRIMARY KEY (channel, eid)
) WITHOUT ROWID;
-- Whoever acquires an execution takes it out.
CREATE INDEX waiters_eid ON waiters (eid);

CREATE TABLE claims (key TEXT PRIMARY KEY, eid BLOB NOT NULL, value BLOB NOT NULL, at INTEGER NOT NULL)
WITHOUT ROWID;

CREATE TABLE dispatch (key TEXT PRIMARY KEY, eid BLOB NOT NULL) WITHOUT ROWID;
