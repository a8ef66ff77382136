import { options } from 'preact';
import { CONSOLE } from '../defaults.ts';

/**
 * Draws nothing while a button or link is pressed. A row that moves meanwhile is pressed, and another one released: a browser then sees no click
 * on either.
 */
export function holdWhilePressed(): void {
  let pressed: ReturnType<typeof setTimeout> | undefined;
  let held: (() => void) | undefined;
  const hold = (ms: number) => {
    clearTimeout(pressed);
    pressed = setTimeout(() => {
      pressed = undefined;
      held?.();
      held = undefined;
    }, ms);
  };
  options.debounceRendering = (draw) => {
    if (pressed === undefined) queueMicrotask(draw);
    else held = draw;
  };
  addEventListener('pointerdown', ({ button, target }) => {
    if (button === 0 && target instanceof Element && target.closest('a, button')) hold(CONSOLE.pressMs);
  });
  const released = () => {
    // The click follows at once.
    if (pressed !== undefined) hold(0);
  };
  addEventListener('pointerup', released);
  addEventListener('pointercancel', released);
}
