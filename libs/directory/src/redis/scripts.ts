import { LOOK, OPEN, REMOVE, STAGE, WRITE } from './hub/hub-scripts.ts';
import { BEAT, ROLL_CALL } from './member/member-scripts.ts';
import { QUARANTINE, RESTORE } from './quarantine/quarantine-scripts.ts';

export const SCRIPTS = {
  isthmusWrite: { lua: WRITE, numberOfKeys: 5 },
  isthmusStage: { lua: STAGE, numberOfKeys: 1 },
  isthmusOpen: { lua: OPEN, numberOfKeys: 6 },
  isthmusRemove: { lua: REMOVE, numberOfKeys: 5 },
  isthmusLook: { lua: LOOK, numberOfKeys: 3 },
  isthmusQuarantine: { lua: QUARANTINE, numberOfKeys: 3 },
  isthmusRestore: { lua: RESTORE, numberOfKeys: 3 },
  isthmusBeat: { lua: BEAT, numberOfKeys: 1 },
  isthmusRollCall: { lua: ROLL_CALL, numberOfKeys: 1 },
} as const;

type Write = (...keysThenArguments: (string | number)[]) => Promise<string>;

/** The scripts as commands of a client. */
export interface Scripted {
  readonly isthmusWrite: Write;
  readonly isthmusStage: Write;
  readonly isthmusOpen: Write;
  readonly isthmusRemove: Write;
  readonly isthmusQuarantine: Write;
  readonly isthmusRestore: Write;
  readonly isthmusBeat: Write;
  isthmusRollCall(members: string, ttlMs: number): Promise<string[]>;
  isthmusLook(
    hubs: string,
    meta: string,
    quarantines: string,
  ): Promise<[charge: string[], position: (string | null)[], server: [run: string, role: string], exists: number]>;
}
