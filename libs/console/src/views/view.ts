import type { Finding } from '@isthmus/findings';
import type { Agent } from '../model/agents.ts';
import type { Plane, Seen } from '../model/plane.ts';
import type { Action } from '../parts/confirm.tsx';
import type { Settings } from '../settings.ts';

/** What every view gets. */
export interface ViewProps {
  readonly plane: Plane;
  readonly agents: readonly Agent[];
  /** What is wrong, failures first. */
  readonly findings: readonly Finding[];
  readonly settings: Settings;
  /** Opens the dialog of an action. */
  readonly ask: (action: Action) => void;
}

export function selfOf({ members }: Plane): Seen | undefined {
  return members.find(({ self }) => self);
}

/** Where another member's console is, at the same view. */
export function consoleOf({ origin, self }: Seen, view: string): string | undefined {
  return self || origin === undefined ? undefined : `${origin}/console/#/${view}`;
}

/** The address for `isthmus --address`, from the place of this page. */
export function ownAddress(): string {
  return location.host;
}
