-- The schema of a projection. It is derived: a file of another version is made anew, not converted.
-- Instants are microseconds since 1970-01-01T00:00Z, ids of executions their 16 bytes, and
-- positions those of the control log.

-- How far the log is applied. The last entry is known by more than its position, to notice that
-- another log stands in the place of the one that this was made from.
CREATE TABLE progress (position INTEGER NOT NULL, eid BLOB NOT NULL, at INTEGER NOT NULL);
INSERT INTO progress VALUES (0, x'', 0);

CREATE TABLE executions (
    eid BLOB PRIMARY KEY,
    workflow TEXT,
    version TEXT,
    queue TEXT,
    dispatch_key TEXT,
    parent BLOB,
    status TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    updated_at INTEGER NOT NULL,
    ended_at INTEGER,               -- set once the status is a terminal one
    suspended_on BLOB,              -- JSON list
    blocked TEXT,
    error_type TEXT,
    error_message TEXT,
    continued_as BLOB,
    archived_at INTEGER
) WITHOUT ROWID;
-- The order of lists; by status, it also counts.
CREATE INDEX executions_updated ON executions (updated_at DESC, eid);
CREATE INDEX executions_status ON executions (status, updated_at DESC, eid);
CREATE INDEX executions_children ON executions (parent, created_at, eid) WHERE parent IS NOT NULL;

CREATE TABLE reviews (
    position INTEGER PRIMARY KEY,   -- of its request
    rid TEXT NOT NULL UNIQUE,
    eid BLOB NOT NULL,
    fid TEXT NOT NULL,
    queue TEXT NOT NULL,
    payload BLOB NOT NULL,
    schema BLOB NOT NULL,
    deadline INTEGER,
    requested_at INTEGER NOT NULL,
    task_id TEXT NOT NULL,
    reply_channel TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'pending',
    verdict TEXT,
    data BLOB NOT NULL DEFAULT 'null',
    decided_by BLOB,
    decided_at INTEGER
);
-- An inbox shows what is pending, among very many that are not.
CREATE INDEX reviews_status ON reviews (status, position);
CREATE INDEX reviews_pending ON reviews (eid) WHERE status = 'pending';

CREATE TABLE announcements (
    position INTEGER PRIMARY KEY,
    eid BLOB NOT NULL,
    fid TEXT NOT NULL,
    type TEXT NOT NULL,
    payload BLOB NOT NULL,
    at INTEGER NOT NULL
);
CREATE INDEX announcements_type ON announcements (type, position);
CREATE INDEX announcements_eid ON announcements (eid, position);

CREATE TABLE tasks (
    position INTEGER PRIMARY KEY,
    eid BLOB NOT NULL,
    task_id TEXT NOT NULL,
    queue TEXT NOT NULL,
    kind TEXT NOT NULL,
    fid TEXT NOT NULL,
    at INTEGER NOT NULL,
    UNIQUE (eid, task_id)
)
