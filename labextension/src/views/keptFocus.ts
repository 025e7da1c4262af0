/** Keeps the focus in a part of the page whose focused element is removed. */
import * as React from 'react';

type FocusHandlers = Pick<React.HTMLAttributes<HTMLElement>, 'onFocus' | 'onBlur'>;

/**
 * The handlers belong to the container. `target`: takes the focus that would fall to the page's
 * body; `focused` is the element that had it last.
 */
export function useKeptFocus(
  container: React.RefObject<HTMLElement>,
  target: () => HTMLElement | null | undefined,
  remember: (focused: HTMLElement) => void = () => undefined
): FocusHandlers {
  const isInside = React.useRef(false);
  React.useLayoutEffect(() => {
    const isLost = document.activeElement === null || document.activeElement === document.body;
    if (isInside.current && isLost) {
      target()?.focus();
    }
  });
  return {
    onFocus: event => {
      isInside.current = true;
      remember(event.target as HTMLElement);
    },
    onBlur: event => {
      const element = event.target;
      window.setTimeout(() => {
        if (element.isConnected && !container.current?.contains(document.activeElement)) {
          isInside.current = false; // the focus moved elsewhere
        }
      });
    }
  };
}
