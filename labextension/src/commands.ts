/** Command ids, and the commands that act on the current notebook. */
import { JupyterFrontEnd } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { TranslationBundle } from '@jupyterlab/translation';

import { kernelOf } from './notebooks';
import { Kernel } from './schema';
import { IGpuShare } from './tokens';
import { Act, actionWords, possibleActions } from './views/actions';

export const COMMANDS = {
  show: 'gpushare:show',
  dashboard: 'gpushare:dashboard',
  chart: 'gpushare:chart',
  request: 'gpushare:request',
  control: 'gpushare:control',
  create: 'gpushare:create-notebook',
  ask: 'gpushare:create-notebook-dialog'
} as const;

export const ACTIONS: readonly Act[] = [
  'cancel',
  'release',
  'suspend',
  'resume',
  'move',
  'pin',
  'unpin',
  'run-without-gpu'
];

export function actionCommand(action: Act): string {
  return `gpushare:${action}`;
}

/**
 * One command per action on the current notebook's kernel; enabled while the action is possible.
 */
export function addActionCommands(
  app: JupyterFrontEnd,
  gpushare: IGpuShare,
  notebooks: INotebookTracker,
  trans: TranslationBundle
): void {
  const front = (): Kernel | null =>
    notebooks.currentWidget === null ? null : kernelOf(notebooks.currentWidget, gpushare.state);
  ACTIONS.forEach(action =>
    app.commands.addCommand(actionCommand(action), {
      label: () => menuLabel(action, trans),
      caption: () => actionWords(action, front() ?? NOBODY, trans).hint,
      isEnabled: () => isPossible(action, front()),
      execute: () => {
        const kernel = front();
        return kernel === null ? undefined : gpushare.act(kernel.kernel_id, action);
      },
      describedBy: { args: { type: 'object', properties: {} } }
    })
  );
  gpushare.changed.connect(() => app.commands.notifyCommandChanged());
}

function isPossible(action: Act, kernel: Kernel | null): boolean {
  if (kernel === null) {
    return false;
  }
  const possible = possibleActions(kernel);
  return action === 'move' ? possible.includes('suspend') : possible.includes(action);
}

const NOBODY = {
  state: 'attached',
  pinned: false,
  pending_change: null,
  request: { gpu: null, gpu_memory_mib: null }
} as Kernel;

/** Labels for menus and palette, where the notebook is not visible beside them. */
function menuLabel(action: Act, trans: TranslationBundle): string {
  switch (action) {
    case 'cancel':
      return trans.__("Cancel the Change of This Notebook's GPU Share");
    case 'release':
      return trans.__("Release This Notebook's GPU Share");
    case 'run-without-gpu':
      return trans.__('Run Waiting Cells Without a GPU');
    case 'suspend':
      return trans.__("Suspend This Notebook's GPU Memory");
    case 'resume':
      return trans.__("Resume This Notebook's GPU Memory");
    case 'move':
      return trans.__('Move This Notebook to Another GPU');
    case 'pin':
      return trans.__("Pin This Notebook's GPU Memory");
    case 'unpin':
      return trans.__("Unpin This Notebook's GPU Memory");
  }
}
