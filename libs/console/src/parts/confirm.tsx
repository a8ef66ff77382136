import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { CONSOLE } from '../defaults.ts';
import { reasonOf } from '../rpc.ts';

/** An action that asks before it is done. */
export interface Action {
  readonly title: string;
  readonly about: ComponentChildren;
  /** On the button that does it. */
  readonly word: string;
  /** Whether a reason must be given, may be, or is not asked for. */
  readonly reason: 'needed' | 'wanted' | 'none';
  /** Returns what was done, in words. */
  readonly run: (reason: string) => Promise<string>;
}

/** The dialog of an action: Escape and Cancel do nothing. The browser keeps the keyboard inside. */
export function Confirm({
  action,
  done,
}: {
  readonly action: Action;
  /** @param said what was done; undefined if nothing was */
  readonly done: (said: string | undefined) => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [reason, setReason] = useState('');
  const [busy, setBusy] = useState(false);
  const [fault, setFault] = useState('');
  useEffect(() => dialog.current?.showModal(), []);
  const run = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      done(await action.run(reason.trim()));
    } catch (error) {
      setFault(reasonOf(error));
      setBusy(false);
    }
  };
  return (
    <dialog ref={dialog} aria-labelledby="confirm-title" onClose={() => done(undefined)}>
      <form onSubmit={run}>
        <h2 id="confirm-title">{action.title}</h2>
        {action.about}
        {action.reason !== 'none' && (
          <label>
            Reason, for the log, the audit and other operators{action.reason === 'needed' ? '' : ' (may be empty)'}
            <input
              value={reason}
              maxLength={CONSOLE.reasonCharacters}
              required={action.reason === 'needed'}
              onInput={({ currentTarget }) => setReason(currentTarget.value)}
            />
          </label>
        )}
        {fault !== '' && (
          <p class="fault" role="alert">
            {fault}
          </p>
        )}
        <p class="buttons">
          <button type="button" onClick={() => dialog.current?.close()}>
            Cancel
          </button>
          <button type="submit" class="act" disabled={busy}>
            {action.word}
          </button>
        </p>
      </form>
    </dialog>
  );
}
