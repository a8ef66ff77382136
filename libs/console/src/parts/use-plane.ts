import { useEffect, useRef, useState } from 'preact/hooks';
import { lookAt } from '../model/look.ts';
import { NOTHING, type Plane } from '../model/plane.ts';

const LOOK_MS = 2000;
/** Sessions are the largest answer: those of a large plane are asked for less often. */
const MANY_SESSIONS = 2000;
const MANY_EVERY = 5;

/**
 * Follows the plane while the page is seen.
 * @param allowed the origins that the page may ask
 * @returns the plane, and a function that looks at once
 */
export function usePlane(allowed: readonly string[]): [Plane, () => void] {
  const [plane, setPlane] = useState(NOTHING);
  const looking = useRef<() => void>(() => {});
  useEffect(() => {
    let known = NOTHING;
    let round = 0;
    let busy = false;
    const look = async () => {
      if (busy || document.hidden) return;
      busy = true;
      const withSessions = known.sessions.length < MANY_SESSIONS || round % MANY_EVERY === 0;
      known = await lookAt(known, allowed, withSessions);
      round++;
      busy = false;
      setPlane(known);
    };
    looking.current = () => {
      round = 0;
      void look();
    };
    void look();
    const timer = setInterval(() => void look(), LOOK_MS);
    document.addEventListener('visibilitychange', look);
    return () => {
      clearInterval(timer);
      document.removeEventListener('visibilitychange', look);
    };
  }, [allowed]);
  return [plane, () => looking.current()];
}

/** Asks every so often while the page is seen. @param key changes when the question does */
export function useAsked<T>(
  ask: () => Promise<T>,
  everyMs: number,
  key: string,
): { answer: T | undefined; fault: unknown } {
  const [state, setState] = useState<{ key: string; answer: T | undefined; fault: unknown }>({
    key,
    answer: undefined,
    fault: undefined,
  });
  // `key` stands for the question.
  useEffect(() => {
    let ended = false;
    let busy = false;
    const look = async () => {
      if (busy || document.hidden) return;
      busy = true;
      const result = await ask().then(
        (answer) => ({ key, answer, fault: undefined }),
        (fault: unknown) => ({ key, answer: undefined, fault }),
      );
      busy = false;
      // What was known is still shown beside the reason why it is old.
      if (!ended)
        setState((before) => ({
          ...result,
          answer: result.answer ?? (before.key === key ? before.answer : undefined),
        }));
    };
    void look();
    const timer = setInterval(() => void look(), everyMs);
    return () => {
      ended = true;
      clearInterval(timer);
    };
  }, [key, everyMs]);
  return state.key === key ? state : { answer: undefined, fault: undefined };
}
