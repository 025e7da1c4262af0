/** The actions on a kernel's share, as buttons. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { shareText } from '../format';
import { Kernel } from '../schema';
import { Action } from '../state';
import { useKeptFocus } from './keptFocus';

export type Act = Exclude<Action, 'request'>;

/** The actions that are possible in a state; the server decides. */
export function possibleActions(kernel: Kernel): Act[] {
  const hasChange = kernel.pending_change !== null && kernel.state !== 'pending';
  return [...(hasChange ? (['cancel'] as const) : []), ...stateActions(kernel)];
}

function stateActions(kernel: Kernel): Act[] {
  switch (kernel.state) {
    case 'detached':
      return [];
    case 'pending':
      return ['run-without-gpu', 'release'];
    case 'attached':
      return ['suspend', kernel.pinned ? 'unpin' : 'pin', 'release'];
    case 'suspended':
      return ['resume', kernel.pinned ? 'unpin' : 'pin', 'release'];
    default:
      return ['release'];
  }
}

interface IActionWords {
  readonly label: string;
  readonly hint: string;
}

/** Label and tooltip of an action on this kernel. */
export function actionWords(action: Act, kernel: Kernel, trans: TranslationBundle): IActionWords {
  switch (action) {
    case 'release':
      return kernel.state === 'pending'
        ? {
            label: trans.__('Stop waiting'),
            hint: trans.__('Cancel the request; waiting cells do not run')
          }
        : {
            label: trans.__('Release'),
            hint: trans.__('Release the GPU; the kernel keeps running without one')
          };
    case 'cancel':
      return {
        label: trans.__('Keep %1', shareText(kernel.request) ?? trans.__('the current share')),
        hint: trans.__('Cancel the requested change')
      };
    case 'run-without-gpu':
      return {
        label: trans.__('Run without a GPU'),
        hint: trans.__('Run waiting cells now, without a GPU; the request stays in the queue')
      };
    case 'suspend':
      return {
        label: trans.__('Suspend'),
        hint: trans.__('Save the GPU memory to host memory; the kernel keeps running')
      };
    case 'resume':
      return { label: trans.__('Resume'), hint: trans.__('Restore the saved GPU memory') };
    case 'pin':
      return {
        label: trans.__('Pin'),
        hint: trans.__('Do not suspend this kernel while it is idle')
      };
    case 'unpin':
      return {
        label: trans.__('Unpin'),
        hint: trans.__('Allow suspending this kernel while it is idle')
      };
    case 'move':
      return {
        label: trans.__('Move now'),
        hint: trans.__('Save the GPU memory and restore it on a GPU with room')
      };
  }
}

interface IActionsProps {
  kernel: Kernel;
  /** The action in flight. */
  activeAction: Action | null;
  onAct: (kernelId: string, action: Act) => void;
  onAsk: () => void;
  trans: TranslationBundle;
}

export function Actions({ kernel, activeAction, onAct, onAsk, trans }: IActionsProps): JSX.Element {
  const row = React.useRef<HTMLDivElement>(null);
  const keep = useKeptButton(row);
  const isBusy = activeAction !== null;
  return (
    <div ref={row} className="jp-GpuShare-actions" {...keep}>
      <button
        className="jp-GpuShare-button"
        aria-disabled={isBusy}
        onClick={() => isBusy || onAsk()}
      >
        {kernel.state === 'detached' ? trans.__('Request a GPU share…') : trans.__('Change…')}
      </button>
      {possibleActions(kernel).map(action => {
        const { label, hint } = actionWords(action, kernel, trans);
        return (
          <button
            key={action}
            className="jp-GpuShare-button"
            title={hint}
            aria-disabled={isBusy}
            aria-busy={activeAction === action}
            onClick={() => isBusy || onAct(kernel.kernel_id, action)}
          >
            {label}
          </button>
        );
      })}
    </div>
  );
}

/**
 * Keeps the focus in a row of buttons that change: Pin becomes Unpin, Suspend becomes Resume. Busy
 * buttons are `aria-disabled`, because browsers take the focus from disabled ones.
 */
function useKeptButton(row: React.RefObject<HTMLElement>): ReturnType<typeof useKeptFocus> {
  const index = React.useRef(0);
  const buttons = () => [...(row.current?.querySelectorAll('button') ?? [])];
  return useKeptFocus(
    row,
    () => buttons()[Math.min(index.current, buttons().length - 1)],
    focused => {
      index.current = buttons().indexOf(focused as HTMLButtonElement);
    }
  );
}
