import { useEffect, useRef, useState } from 'preact/hooks';
import { CONSOLE } from '../defaults.ts';
import { DialFeed } from '../model/dials.ts';
import { hrefOf, lookAt, NOTHING, type Plane } from '../model/plane.ts';
import { askAll, reasonOf, type Watched, watchDials } from '../rpc.ts';

/**
 * Looks at once, then every so often while the page is seen, never twice at a time.
 * @param key changes when there is something else to look at
 * @returns a function that looks at once
 */
function useLooking(look: (ended: () => boolean) => Promise<void>, everyMs: number, key: string): () => void {
  const looking = useRef(() => {});
  // `key` stands for what is looked at.
  useEffect(() => {
    let [busy, ended] = [false, false];
    looking.current = () => {
      if (busy || document.hidden) return;
      busy = true;
      void look(() => ended).finally(() => {
        busy = false;
      });
    };
    const again = () => looking.current();
    again();
    const timer = setInterval(again, everyMs);
    document.addEventListener('visibilitychange', again);
    return () => {
      ended = true;
      clearInterval(timer);
      document.removeEventListener('visibilitychange', again);
    };
  }, [key, everyMs]);
  return () => looking.current();
}

/** Follows the plane while the page is seen. @param self the page's own member @returns the plane, and a function that looks at once */
export function usePlane(self: string): [Plane, () => void] {
  const [plane, setPlane] = useState(NOTHING);
  const known = useRef({ plane: NOTHING, round: 0 });
  const look = async () => {
    const { plane: before, round } = known.current;
    const withSessions = before.sessions.length < CONSOLE.manySessions || round % CONSOLE.sessionRounds === 0;
    const seen = await lookAt(before, self, withSessions);
    known.current = { plane: seen, round: known.current.round + 1 };
    setPlane(seen);
  };
  const again = useLooking(look, CONSOLE.lookMs, self);
  const lookNow = () => {
    known.current.round = 0;
    again();
  };
  return [plane, lookNow];
}

/**
 * A text of a view that is in the page's address, so that whoever gets the address sees the same.
 * @param text as the address has it now
 * @param rest of the address
 * @returns the text, and a function that changes it and the address
 */
export function useAddressed(view: string, text: string, ...rest: readonly string[]): [string, (text: string) => void] {
  const [now, setNow] = useState(text);
  useEffect(() => setNow(text), [text]);
  const change = (next: string) => {
    setNow(next);
    location.replace(hrefOf(view, next, ...rest));
  };
  return [now, change];
}

/** What was asked, and its answer; beside the reason why it is old, that from before. */
interface Asked<T> {
  readonly key: string;
  readonly answer: T | undefined;
  readonly fault: unknown;
}

/** Asks every so often while the page is seen. @param key changes when the question does */
export function useAsked<T>(ask: () => Promise<T>, everyMs: number, key: string): Omit<Asked<T>, 'key'> {
  const [state, setState] = useState<Asked<T>>({ key, answer: undefined, fault: undefined });
  const look = async (ended: () => boolean) => {
    const result = await ask().then(
      (answer) => ({ answer, fault: undefined }),
      (fault: unknown) => ({ answer: undefined, fault }),
    );
    if (ended()) return;
    setState((before) => ({
      key,
      fault: result.fault,
      answer: result.answer ?? (before.key === key ? before.answer : undefined),
    }));
  };
  useLooking(look, everyMs, key);
  return state.key === key ? state : { answer: undefined, fault: undefined };
}

/** What was asked for, as by a button: its answer, or why there is none. */
interface Done<T> {
  readonly busy?: boolean;
  readonly answer?: T;
  readonly fault?: unknown;
}

/** Returns what became of the last thing that was asked for, and a function that asks for another. */
export function useDone<T>(): [Done<T>, (asked: Promise<T>) => void] {
  const [done, setDone] = useState<Done<T>>({});
  const last = useRef<Promise<T> | undefined>(undefined);
  const ask = (asked: Promise<T>) => {
    last.current = asked;
    const settle = (next: Done<T>) => {
      if (last.current === asked) setDone(next);
    };
    setDone({ busy: true });
    asked.then(
      (answer) => settle({ answer }),
      (fault: unknown) => settle({ fault }),
    );
  };
  return [done, ask];
}

/** The last hour of each member, as it has it in its memory. @param tenant of which; empty: of all that the visitor may see */
export function useHistories(members: Plane['members'], tenant = '') {
  const ids = members.map(({ id }) => id);
  const ask = () => askAll(ids, 'GetHistory', tenant === '' ? {} : { tenant }, CONSOLE.othersMs);
  return useAsked(ask, CONSOLE.slowLookMs, `${ids} ${tenant}`);
}

const DETAILS = { phases: true, firstBytes: true };

/** Follows the dials of members. @returns the feed, and why members cannot be followed; a new value at each change */
export function useDials(members: readonly string[], filter: Watched, paused: boolean) {
  const asked = useRef({ key: '', feed: new DialFeed() });
  const [, draw] = useState('');
  const [faults, setFaults] = useState<Readonly<Record<string, string>>>({});
  const key = JSON.stringify([members, filter]);
  // Drawn with the new question: dials that only the last one asked for could be opened, and then be gone.
  if (!paused && asked.current.key !== key) asked.current = { key, feed: new DialFeed() };
  const { feed } = asked.current;
  // `key` stands for members and filter.
  useEffect(() => {
    if (paused) return undefined;
    const end = new AbortController();
    feed.clear();
    setFaults({});
    // The same object unless it changes: a new one draws the page, and this is called for each dial.
    const said = (id: string, fault: string) =>
      setFaults((before) => ((before[id] ?? '') === fault ? before : { ...before, [id]: fault }));
    void follow(members, { filter, feed, said, signal: end.signal });
    const timer = setInterval(() => draw(`${key} ${feed.version}`), CONSOLE.drawMs);
    return () => {
      clearInterval(timer);
      end.abort();
    };
  }, [key, paused]);
  return { feed, faults: Object.entries(faults).filter(([, fault]) => fault !== '') };
}

interface Following {
  readonly filter: Watched;
  readonly feed: DialFeed;
  readonly said: (member: string, fault: string) => void;
  readonly signal: AbortSignal;
}

/** Reads members' dials on one connection, again and again: a browser has few, so that one that fails gets none of its own. */
async function follow(members: readonly string[], following: Following): Promise<void> {
  const { filter, feed, said, signal } = following;
  const request = { ...filter, recent: CONSOLE.recentDials, ...DETAILS };
  while (!signal.aborted) {
    const again = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    try {
      const lines = watchDials(members, request, AbortSignal.any([signal, again.signal]));
      for await (const { member, answer, error } of lines) {
        if (signal.aborted) return;
        said(member.id, error?.message ?? '');
        if (error) timer ??= setTimeout(() => again.abort(), CONSOLE.slowLookMs);
        else if (answer) {
          const { dial, lost } = answer;
          if (lost > 0) feed.skip(member.id, lost);
          if (dial) feed.take(member.id, dial);
        }
      }
      for (const member of members) said(member, 'it ended the stream');
    } catch (error) {
      if (!signal.aborted && !again.signal.aborted) for (const member of members) said(member, reasonOf(error));
    }
    clearTimeout(timer);
    await new Promise((resolve) => setTimeout(resolve, CONSOLE.retryMs));
  }
}
