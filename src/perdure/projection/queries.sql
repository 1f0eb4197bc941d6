-- Every statement by its name. What a list is narrowed by is put in the place of {where}.

-- name: progress
SELECT position, eid, at FROM progress

-- name: advance
UPDATE progress SET position = ?, eid = ?, at = ? WHERE position = ? AND eid = ? AND at = ?

-- name: create
INSERT INTO executions
    (eid, workflow, version, queue, dispatch_key, parent, status, created_at, updated_at)
VALUES (:eid, :workflow, :version, :queue, :dispatch_key, :parent, 'pending', :at, :at)
ON CONFLICT DO NOTHING

-- name: change
-- What has ended stays as it is.
INSERT INTO executions (eid, status, created_at, started_at, updated_at, ended_at, suspended_on,
    blocked, error_type, error_message, continued_as)
VALUES (:eid, :status, :at, :started_at, :at, :ended_at, :suspended_on,
    :blocked, :error_type, :error_message, :continued_as)
ON CONFLICT (eid) DO UPDATE SET
    status = excluded.status,
    started_at = coalesce(started_at, excluded.started_at),
    updated_at = excluded.updated_at,
    ended_at = excluded.ended_at,
    suspended_on = excluded.suspended_on,
    blocked = excluded.blocked,
    error_type = excluded.error_type,
    error_message = excluded.error_message,
    continued_as = excluded.continued_as
WHERE ended_at IS NULL

-- name: migrate
INSERT INTO executions (eid, version, status, created_at, updated_at)
VALUES (:eid, :version, 'pending', :at, :at)
ON CONFLICT (eid) DO UPDATE SET version = excluded.version

-- name: archive
UPDATE executions SET archived_at = ? WHERE eid = ? AND archived_at IS NULL

-- name: announce
INSERT INTO announcements VALUES (?, ?, ?, ?, ?, ?)

-- name: enqueue
INSERT OR REPLACE INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: request
INSERT INTO reviews (position, rid, eid, fid, queue, payload, schema, deadline, requested_at,
    task_id, reply_channel)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING

-- name: decide
UPDATE reviews SET status = 'decided', verdict = ?, data = ?, decided_by = ?, decided_at = ?
WHERE rid = ? AND eid = ? AND status = 'pending'

-- name: expire
UPDATE reviews SET status = 'expired' WHERE rid = ? AND eid = ? AND status = 'pending'

-- name: expire_all
UPDATE reviews SET status = 'expired' WHERE eid = ? AND status = 'pending'

-- name: executions
SELECT eid, workflow, version, status, queue, dispatch_key, parent, created_at, started_at,
    updated_at, ended_at, suspended_on, blocked, error_type, error_message, continued_as,
    archived_at
FROM executions {where} ORDER BY updated_at DESC, eid LIMIT :limit

-- name: children
SELECT eid, workflow, version, status, queue, dispatch_key, parent, created_at, started_at,
    updated_at, ended_at, suspended_on, blocked, error_type, error_message, continued_as,
    archived_at
FROM executions WHERE parent = ? ORDER BY created_at, eid

-- name: counts
SELECT status, count(*) FROM executions GROUP BY status ORDER BY status

-- name: reviews
SELECT position, rid, eid, fid, queue, payload, schema, deadline, requested_at, status, verdict,
    data, decided_by, decided_at, task_id, reply_channel
FROM reviews {where} ORDER BY position LIMIT :limit

-- name: announcements
SELECT position, eid, fid, type, payload, at FROM announcements {where}
ORDER BY position LIMIT :limit

-- name: tasks
SELECT task_id, queue, kind, eid, fid, at FROM tasks WHERE eid = ? ORDER BY position
