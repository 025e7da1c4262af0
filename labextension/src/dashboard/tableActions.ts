/** Carries out the actions on rows. */
import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import { ServerConnection } from '@jupyterlab/services';
import { TranslationBundle } from '@jupyterlab/translation';

import { errorText, ICall, IRoute, rest } from '../apiClient';
import { problemText } from '../messages';
import { CordonStatus, ROUTES, WorkloadView } from '../schema';
import { IGpuShare } from '../tokens';
import { Act } from '../views/actions';
import { ITableActions, NodeAction } from './rowActions';

const SHOWN_MS = 10_000;

export class TableActions implements ITableActions {
  constructor(
    private readonly gpushare: IGpuShare,
    /** Called after an action, so that the tables show its effect. */
    private readonly refresh: () => void,
    private readonly trans: TranslationBundle,
    private readonly settings: ServerConnection.ISettings = ServerConnection.makeSettings()
  ) {}

  act(kernelId: string, action: Act): void {
    void this.gpushare.act(kernelId, action).then(accepted => {
      const refusal = this.gpushare.state.asked[kernelId]?.refusal;
      if (!accepted && refusal) {
        this.fail(refusal.message);
      }
      this.refresh();
    });
  }

  end(workload: WorkloadView): void {
    const { trans } = this;
    void this.ask(
      trans.__('End %1?', workload.name || workload.id),
      trans.__(
        'Its GPUs are released. GPU memory that cannot be saved is lost, and a command is stopped. User: %1, project: %2.',
        workload.user,
        workload.project
      ),
      trans.__('End')
    ).then(agreed => {
      if (agreed) {
        void this.call(ROUTES.endWorkload, { names: { id: workload.id } });
      }
    });
  }

  node(name: string, action: NodeAction): void {
    const { trans } = this;
    const carryOut = () =>
      void this.call(ROUTES.nodeAction, { names: { name, action }, body: {} }).then(text => {
        const message = text === null ? '' : (JSON.parse(text) as CordonStatus).message;
        if (message !== '') {
          Notification.info(`${name}: ${message}`, { autoClose: SHOWN_MS });
        }
      });
    if (action !== 'drain') {
      carryOut();
      return;
    }
    void this.ask(
      trans.__('Drain node %1?', name),
      trans.__('Its workloads are evicted after their notice, and no new ones are placed on it.'),
      trans.__('Drain')
    ).then(agreed => agreed && carryOut());
  }

  private async ask(title: string, body: string, label: string): Promise<boolean> {
    const answer = await showDialog({
      title,
      body,
      buttons: [
        Dialog.cancelButton({ label: this.trans.__('Cancel') }),
        Dialog.warnButton({ label })
      ]
    });
    return answer.button.accept;
  }

  /** The answer; null: it was refused, which is shown. */
  private async call(route: IRoute, call: ICall): Promise<string | null> {
    try {
      return await rest(this.settings, route, call);
    } catch (error) {
      this.fail(errorText(error));
      return null;
    } finally {
      this.refresh();
    }
  }

  private fail(message: string): void {
    Notification.error(problemText(message, this.trans), { autoClose: SHOWN_MS });
  }
}
