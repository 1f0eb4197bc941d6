-- Every statement of the SQLite store, by name.

-- name: open_session
INSERT INTO sessions (site, ttl, used_at) VALUES (?, ?, ?)

-- name: mark_idle_sessions
-- A batch of appends carries no time, so whoever opens a session notes how far those without a time
-- to live have come since the last look.
UPDATE sessions SET seen_batch_no = batch_no, used_at = max(used_at, ?)
WHERE ttl IS NULL AND batch_no <> seen_batch_no

-- name: purge_sessions
-- Sessions that nobody will ask about again: dead, or of an engine that vanished, for a day.
DELETE FROM sessions WHERE used_at < ? AND (live = 0 OR ttl IS NULL)

-- name: delete_session
DELETE FROM sessions WHERE id = ?

-- name: session
SELECT live, batch_no, committed, site FROM sessions WHERE id = ?

-- name: session_site
SELECT site FROM sessions WHERE id = ? AND live = 1

-- name: store_batch
UPDATE sessions SET batch_no = ?, committed = ?, used_at = max(used_at, ?) WHERE id = ?

-- name: beat
UPDATE sessions SET beat = beat + 1 WHERE id = ? AND live = 1

-- name: owned
SELECT eid, epoch, wake FROM executions WHERE owner = ? ORDER BY eid

-- name: sessions
SELECT id, beat, ttl FROM sessions WHERE live = 1 AND ttl IS NOT NULL ORDER BY id

-- name: expire_session
UPDATE sessions SET live = 0, used_at = max(used_at, ?) WHERE id = ? AND beat = ? AND live = 1

-- name: intern_site
INSERT OR IGNORE INTO sites (body) VALUES (?)

-- name: site_id
SELECT id FROM sites WHERE body = ?

-- name: intern_actor
INSERT OR IGNORE INTO actors (body) VALUES (?)

-- name: actor_id
SELECT id FROM actors WHERE body = ?

-- name: claim_key
INSERT OR IGNORE INTO dispatch (key, eid) VALUES (?, ?)

-- name: disclaim_key
DELETE FROM dispatch WHERE key = ?

-- name: key_owner
SELECT d.eid, e.workflow FROM dispatch d JOIN executions e ON e.eid = d.eid WHERE d.key = ?

-- name: create
INSERT OR IGNORE INTO executions (eid, workflow, version, queue, args, seed, options, priority,
    dispatch_key, created_by, created_at, status, updated_at, parent, parent_fid, on_parent_cancel,
    expires_at, stop_by, stop_reason)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending', ?, ?, ?, ?, ?, ?, ?)

-- name: begin_fork
UPDATE executions SET epoch = 1 WHERE eid = ?

-- name: enqueue
INSERT OR IGNORE INTO tasks (eid, kind, queue, workflow, version, priority, reason, not_before,
    enqueued_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: enqueue_resume
-- Whoever closes a session gives no instant: then the last one known of the execution stands.
INSERT OR IGNORE INTO tasks (eid, kind, queue, workflow, version, priority, reason, enqueued_at)
SELECT eid, 'resume', queue, workflow, coalesce(next_version, version), priority, ?,
    max(?, updated_at)
FROM executions WHERE eid = ?

-- name: control
INSERT INTO control (eid, type, at, epoch, body) VALUES (?, ?, ?, ?, ?)

-- name: append
-- FAIL keeps the rows before the one that collides, which spares SQLite a copy of every page that
-- the statement touches. Whoever gets the error undoes the rest.
INSERT OR FAIL INTO journal (eid, seq, count, epoch, site, body) VALUES (?, ?, ?, ?, ?, ?)

-- name: consume
INSERT INTO channels (eid, name, last_seq, consumed) VALUES (?1, ?2, ?3, ?3)
ON CONFLICT (eid, name) DO UPDATE SET consumed = max(consumed, excluded.consumed)

-- name: suspend
UPDATE executions
SET status = 'suspended', owner = NULL, suspended_on = ?, blocked = ?, updated_at = ?
WHERE eid = ? AND epoch = ? AND owner IS NOT NULL AND wake = ?
RETURNING next_version

-- name: is_owned
SELECT 1 FROM executions WHERE eid = ? AND epoch = ? AND owner IS NOT NULL

-- name: has_epoch
SELECT 1 FROM executions WHERE eid = ? AND epoch = ?

-- name: delete_timers
DELETE FROM timers WHERE eid = ?

-- name: set_timer
INSERT OR REPLACE INTO timers (eid, timer_id, due) VALUES (?, ?, ?)

-- name: end
UPDATE executions
SET status = ?, owner = NULL, result = ?, error_type = ?, error_message = ?, ended_at = ?,
    updated_at = ?, continued_as = ?
WHERE eid = ? AND epoch = ? AND owner IS NOT NULL
RETURNING parent, parent_fid, stop_by, stop_reason, next_version

-- name: close
-- Whoever owned it is fenced.
UPDATE executions
SET status = ?, owner = NULL, epoch = epoch + 1, ended_at = ?, updated_at = ?, stop_by = ?,
    stop_reason = ?, error_type = ?, error_message = ?, suspended_on = NULL, blocked = NULL
WHERE eid = ?
RETURNING epoch, parent, parent_fid

-- name: open_children
SELECT eid FROM executions
WHERE parent = ? AND ended_at IS NULL AND on_parent_cancel = 'cancel' ORDER BY eid

-- name: request_cancel
UPDATE executions SET wake = wake + 1, stop_by = ?, stop_reason = ?
WHERE eid = ? AND ended_at IS NULL AND stop_by IS NULL RETURNING status, owner

-- name: migrate_later
UPDATE executions SET next_version = ?, wake = wake + 1 WHERE eid = ?

-- name: migrate
UPDATE executions SET version = ?, next_version = NULL, epoch = epoch + 1, wake = wake + 1
WHERE eid = ? RETURNING epoch

-- name: migrate_tasks
UPDATE tasks SET version = ? WHERE eid = ? AND fid IS NULL

-- name: move_key
UPDATE dispatch SET eid = ? WHERE key = ?

-- name: unmoved
-- What the successor is to read: what is unread, and what was given back.
SELECT m.channel, m.seq, m.sent_by, m.sent_at, m.correlation, m.payload
FROM messages m JOIN channels c ON c.eid = m.eid AND c.name = m.channel
WHERE m.eid = ? AND (m.seq > c.consumed OR (m.channel, m.seq) IN (
        SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)
    )) AND NOT instr(m.channel, '/') AND substr(m.channel, 1, 6) <> 'reply.'
ORDER BY m.channel, m.seq

-- name: remove_message
DELETE FROM messages WHERE eid = ? AND channel = ? AND seq = ?

-- name: settle_channels
UPDATE channels SET last_seq = consumed WHERE eid = ? AND last_seq > consumed

-- name: latest
SELECT status, continued_as, owner, version, next_version FROM executions WHERE eid = ?

-- name: delete_tasks
-- What is delegated stays: its consumer may well do what nobody waits for any more.
DELETE FROM tasks WHERE eid = ? AND kind <> 'delegate'

-- name: delete_delegated
DELETE FROM tasks WHERE eid = ? AND kind = 'delegate' AND holder IS NULL

-- name: stop_delegated
UPDATE tasks SET stop = 1 WHERE eid = ? AND kind = 'delegate'

-- name: enqueue_task
-- It runs in the turn of its execution.
INSERT OR IGNORE INTO tasks (eid, kind, key, queue, workflow, version, priority, reason, enqueued_at,
    fid, payload)
SELECT eid, ?, ?, ?, ?, '', priority, ?, ?, ?, ? FROM executions WHERE eid = ?

-- name: withdraw
DELETE FROM tasks WHERE eid = ? AND kind = ? AND key = ? AND queue = ?

-- name: take_delegated
UPDATE tasks SET holder = ?, epoch = epoch + 1, ttl = ?, renewal = renewal + 1, renewed_at = ?
WHERE id = (
    SELECT id FROM tasks WHERE queue = ? AND kind = 'delegate'
        AND not_before IS NULL AND fid IS NOT NULL AND holder IS NULL
    ORDER BY priority, id LIMIT 1
)
RETURNING id, eid, kind, key, queue, fid, payload, epoch, state, stop, workflow

-- name: ready_steps
SELECT id FROM tasks WHERE queue = ? AND kind = 'run_step'
    AND not_before IS NULL AND fid IS NOT NULL AND holder IS NULL
    AND workflow IN (SELECT value FROM json_each(?))
ORDER BY priority, id LIMIT ?

-- name: take_step
UPDATE tasks SET holder = ?, epoch = epoch + 1, ttl = NULL, renewal = renewal + 1, renewed_at = ?
WHERE id = ? RETURNING id, eid, kind, key, queue, fid, payload, epoch, state, stop, workflow

-- name: held
SELECT id, eid, kind, key, queue, fid, payload, epoch, state, stop, workflow
FROM tasks WHERE holder = ? ORDER BY id

-- name: renew
UPDATE tasks SET renewal = renewal + 1, renewed_at = ?, state = coalesce(?, state)
WHERE id = ? AND holder = ? AND epoch = ? RETURNING stop

-- name: ack
DELETE FROM tasks WHERE id = ? AND holder = ? AND epoch = ?

-- name: nack
UPDATE tasks SET holder = NULL, not_before = ? WHERE id = ? AND holder = ? AND epoch = ?

-- name: is_held
SELECT 1 FROM tasks WHERE id = ? AND holder = ? AND epoch = ?

-- name: leases
SELECT id, epoch, renewal, ttl FROM tasks WHERE holder IS NOT NULL AND ttl IS NOT NULL ORDER BY holder, id

-- name: expire_lease
UPDATE tasks SET holder = NULL WHERE id = ? AND epoch = ? AND renewal = ? AND holder IS NOT NULL

-- name: free_tasks
UPDATE tasks SET holder = NULL WHERE holder = ?

-- name: has_steps
SELECT EXISTS (
    SELECT 1 FROM tasks WHERE queue IN (SELECT value FROM json_each(?)) AND kind = 'run_step'
        AND not_before IS NULL AND fid IS NOT NULL AND holder IS NULL
        AND workflow IN (SELECT value FROM json_each(?))
)

-- name: has_delegated
SELECT EXISTS (
    SELECT 1 FROM tasks WHERE queue IN (SELECT value FROM json_each(?)) AND kind = 'delegate'
        AND not_before IS NULL AND fid IS NOT NULL AND holder IS NULL
)

-- name: queue_tasks
SELECT eid, kind, key, queue, fid, reason, not_before, payload, enqueued_at, holder
FROM tasks WHERE queue = ? ORDER BY priority, id LIMIT ?

-- name: queue_depth
SELECT count(*) FILTER (WHERE holder IS NULL AND not_before IS NULL),
    count(*) FILTER (WHERE not_before IS NOT NULL),
    count(*) FILTER (WHERE holder IS NOT NULL AND not_before IS NULL)
FROM tasks WHERE queue = ?

-- name: release
UPDATE executions SET owner = NULL WHERE eid = ? AND owner = ? AND epoch = ?

-- name: wake
UPDATE executions SET wake = wake + 1 WHERE eid = ? AND ended_at IS NULL RETURNING status, owner

-- name: next_seq
INSERT INTO channels (eid, name, last_seq) VALUES (?, ?, 1)
ON CONFLICT (eid, name) DO UPDATE SET last_seq = last_seq + 1
RETURNING last_seq

-- name: next_item
-- Of a stream: what is added counts as consumed, so that it is nobody's mail.
INSERT INTO channels (eid, name, last_seq, consumed) VALUES (?, ?, 1, 1)
ON CONFLICT (eid, name) DO UPDATE SET last_seq = last_seq + 1, consumed = last_seq + 1
RETURNING last_seq

-- name: send
INSERT INTO messages (eid, channel, seq, sent_by, sent_at, correlation, payload)
VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: heard
SELECT seq, channel, payload, sent_by, sent_at, correlation FROM messages
WHERE eid = ? AND channel = ? AND seq > ? ORDER BY seq LIMIT ?

-- name: items
SELECT seq, payload FROM messages WHERE eid = ? AND channel = ? AND seq > ? ORDER BY seq LIMIT ?

-- name: last_seq
SELECT last_seq FROM channels WHERE eid = ? AND name = ?

-- name: wait_globally
INSERT OR IGNORE INTO waiters (channel, eid) VALUES (?, ?)

-- name: waiters
SELECT eid FROM waiters WHERE channel = ? ORDER BY eid

-- name: delete_waiter
DELETE FROM waiters WHERE eid = ?

-- name: claim
INSERT OR IGNORE INTO claims (key, eid, value, at) VALUES (?, ?, ?, ?)

-- name: claimed
SELECT value FROM claims WHERE key = ?

-- name: due_timers
-- Only suspended executions have timers: a dequeue deletes them, a suspension writes them anew.
SELECT eid FROM timers WHERE due <= ? ORDER BY due, eid, timer_id LIMIT ?

-- name: delete_due_timers
DELETE FROM timers WHERE eid = ? AND due <= ?

-- name: promote
UPDATE tasks SET not_before = NULL
WHERE id IN (SELECT id FROM tasks WHERE not_before <= ? ORDER BY not_before, id LIMIT ?)

-- name: disown
UPDATE executions SET owner = NULL WHERE owner = ?

-- name: pending_without_task
SELECT eid FROM executions e WHERE status = 'pending'
    AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.eid = e.eid AND t.kind = 'start')
ORDER BY eid LIMIT ?

-- name: enqueue_start
INSERT OR IGNORE INTO tasks (eid, kind, queue, workflow, version, priority, reason, enqueued_at)
SELECT eid, 'start', queue, workflow, version, priority, 'repair', ? FROM executions WHERE eid = ?

-- name: has_ready
SELECT EXISTS (SELECT 1 FROM sessions WHERE id = ? AND live = 1), EXISTS (
    SELECT 1 FROM tasks
    WHERE not_before IS NULL AND fid IS NULL AND queue IN (SELECT value FROM json_each(?))
)

-- name: ready
-- The record of the execution, then the task, and whether the execution can be owned: it exists,
-- has not ended, and no live session owns it.
SELECT e.workflow, e.version, e.args, e.seed, e.queue, e.created_by, e.created_at, e.options,
    e.dispatch_key, e.parent, e.parent_fid, e.on_parent_cancel,
    t.id, t.eid, t.kind, t.reason, e.epoch, e.wake,
    e.eid IS NOT NULL AND e.ended_at IS NULL AND n.live IS NOT 1,
    e.started_at, e.next_version, e.stop_by, e.stop_reason
FROM tasks t
    LEFT JOIN executions e ON e.eid = t.eid
    LEFT JOIN sessions n ON n.id = e.owner
WHERE t.queue = ? AND t.not_before IS NULL AND t.fid IS NULL
    AND (t.workflow, t.version) IN (
        SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)
    )
ORDER BY t.priority, t.id LIMIT ?

-- name: missing
SELECT workflow, version FROM tasks
WHERE queue IN (SELECT value FROM json_each(?1)) AND not_before IS NULL AND fid IS NULL
    AND (workflow, version) NOT IN (
        SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?2)
    )
UNION
SELECT workflow, version FROM tasks
WHERE queue IN (SELECT value FROM json_each(?1)) AND kind = 'run_step' AND not_before IS NULL
    AND fid IS NOT NULL AND holder IS NULL AND (workflow, version) NOT IN (
        SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?2)
    )
ORDER BY workflow, version

-- name: delete_task
DELETE FROM tasks WHERE id = ?

-- name: own
UPDATE executions
SET owner = ?, epoch = ?, status = 'running', started_at = coalesce(started_at, ?),
    updated_at = ?, suspended_on = NULL, blocked = NULL,
    version = coalesce(next_version, version), next_version = NULL
WHERE eid = ?

-- name: journal
SELECT seq, epoch, site, body FROM journal
WHERE eid = :eid AND seq + count > :after + 1
    AND seq >= coalesce((SELECT max(seq) FROM journal WHERE eid = :eid AND seq <= :after + 1), 0)
ORDER BY seq

-- name: tail
SELECT seq + count - 1 FROM journal WHERE eid = ? ORDER BY seq DESC LIMIT 1

-- name: unread
-- The join is CROSS so that the channels lead: consumed messages stay, and must not be read again.
SELECT m.seq, m.channel, m.payload, m.sent_by, m.sent_at, m.correlation
FROM channels c INDEXED BY channels_unread CROSS JOIN messages m
    ON m.eid = c.eid AND m.channel = c.name AND m.seq > c.consumed
WHERE c.eid = ? AND c.last_seq > c.consumed
ORDER BY c.name, m.seq

-- name: actor
SELECT body FROM actors WHERE id = ?

-- name: record
SELECT workflow, version, args, seed, queue, created_by, created_at, options, dispatch_key,
    parent, parent_fid, on_parent_cancel
FROM executions WHERE eid = ?

-- name: row
SELECT e.eid, e.workflow, e.version, e.status, e.queue, e.args, e.dispatch_key, e.created_at,
    e.created_by, e.started_at, e.ended_at, e.updated_at, e.epoch, s.body, e.suspended_on,
    e.blocked, e.result, e.error_type, e.error_message, e.options, e.parent, e.parent_fid,
    e.continued_as, e.stop_by, e.stop_reason
FROM executions e
    LEFT JOIN sessions n ON n.id = e.owner
    LEFT JOIN sites s ON s.id = n.site
WHERE e.eid = ?

-- name: rows
SELECT e.eid, e.workflow, e.version, e.status, e.queue, e.args, e.dispatch_key, e.created_at,
    e.created_by, e.started_at, e.ended_at, e.updated_at, e.epoch, s.body, e.suspended_on,
    e.blocked, e.result, e.error_type, e.error_message, e.options, e.parent, e.parent_fid,
    e.continued_as, e.stop_by, e.stop_reason
FROM executions e
    LEFT JOIN sessions n ON n.id = e.owner
    LEFT JOIN sites s ON s.id = n.site
WHERE (e.created_at, e.eid) < (:created_at, :eid)
    AND (:status IS NULL OR e.status IN (SELECT value FROM json_each(:status)))
    AND (:workflow IS NULL OR e.workflow = :workflow)
    AND (:parent IS NULL OR e.parent = :parent)
    AND (:since IS NULL OR e.created_at >= :since)
    AND (:until IS NULL OR e.created_at < :until)
    AND NOT EXISTS (
        SELECT 1 FROM json_each(:tags) wanted
        WHERE NOT EXISTS (
            SELECT 1 FROM json_each(CAST(e.options AS TEXT), '$.tags') tag
            WHERE tag.key = json_extract(wanted.value, '$[0]')
                AND tag.value = json_extract(wanted.value, '$[1]')
        )
    )
    AND (:text IS NULL OR instr(e.workflow, :text) OR instr(coalesce(e.dispatch_key, ''), :text)
        OR EXISTS (
            SELECT 1 FROM json_each(CAST(e.options AS TEXT), '$.tags') tag
            WHERE instr(tag.value, :text)
        ))
ORDER BY e.created_at DESC, e.eid DESC LIMIT :limit

-- name: is_open
SELECT 1 FROM executions WHERE eid = ? AND ended_at IS NULL

-- name: wake_of
SELECT wake, stop_by, stop_reason FROM executions WHERE eid = ?

-- name: lease
SELECT e.epoch, e.owner, n.live, n.ttl, n.used_at, s.body
FROM executions e
    LEFT JOIN sessions n ON n.id = e.owner
    LEFT JOIN sites s ON s.id = n.site
WHERE e.eid = ?

-- name: site
SELECT body FROM sites WHERE id = ?

-- name: next_timer
SELECT min(due) FROM timers

-- name: expired
SELECT eid FROM executions WHERE expires_at <= ? AND ended_at IS NULL
ORDER BY expires_at, eid LIMIT ?

-- name: next_expiry
SELECT min(expires_at) FROM executions WHERE expires_at IS NOT NULL AND ended_at IS NULL

-- name: next_delayed
SELECT min(not_before) FROM tasks WHERE not_before IS NOT NULL

-- name: control_after
SELECT position, eid, type, at, epoch, body FROM control WHERE position > ?
ORDER BY position LIMIT ?

-- name: control_end
SELECT max(position) FROM control

-- name: count_executions
SELECT status, count(*) FROM executions GROUP BY status ORDER BY status

-- name: count_ready
SELECT count(*) FROM tasks WHERE not_before IS NULL AND holder IS NULL

-- name: count_delayed
SELECT count(*) FROM tasks WHERE not_before IS NOT NULL

-- name: count_timers
SELECT count(*) FROM timers

-- name: count_sessions
SELECT count(*) FROM sessions WHERE live = 1 AND ttl IS NOT NULL
