(* Rule "exchange norms". How far one exchange moves a released table: by at most 2(q_S + 1) in l1
   and q_S^2 + q_S + 2 in squared l2, where q_S is the number of blocks that the table touches. *)
From mathcomp Require Import all_ssreflect fingroup perm ssralg ssrnum ssrint zify.
Require Import Datasets Reach Features Exchange Tables.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.Theory GRing.Theory Num.Theory.

Section ExchangeNorms.
Variables (n : nat) (F B V N : finType) (block : F -> B) (node : F -> V -> N).
Local Notation record := (record F V).
Local Notation tuple_in := (@tuple_in F B V N block node).
Local Notation dataset := (dataset record n).
Local Notation same_totals := (@same_totals record B _ tuple_in n).
Local Notation inhabited := (@inhabited record B _ tuple_in n).
Local Notation differ := (@differ record B _ tuple_in).
Local Notation moves := (@moves F V N node).
Local Notation carriers := (@carriers record B _ tuple_in n).
Local Notation exchange := (@exchange n F B V N block node).
Local Notation arises := (@arises n F B V N block node).
Local Notation adjacent := (@adjacent n F B V N block node).
Implicit Types (X Y : dataset) (p i j : 'I_n) (y : record) (b : B) (f : F).

(* The table shows of feature f the node [label f leaf]: a depth of the feature, or a constant if
   the table does not have it. *)
Variables (M : finType) (label : F -> V -> M).

(* A feature is a chain: the table's depth is coarser than or equal to the published one, or finer. *)
Definition on_chain f :=
  (forall v w : V, node f v = node f w -> label f v = label f w) \/
  (forall v w : V, label f v = label f w -> node f v = node f w).
Hypothesis chains : forall f, on_chain f.

(* The cell of a record in the table, and the cells of all records of a dataset. *)
Definition cell (r : record) : {ffun F -> M} := [ffun f => label f (r f)].
Definition cells X (i : 'I_n) := cell (X i).

(* The blocks that the table touches: it shows two different labels for two records with different
   published nodes of a feature of the block. Their number is q_S. *)
Definition touched X := [set b | [exists f, exists i, exists j,
  [&& block f == b, node f (X i f) != node f (X j f) & label f (X i f) != label f (X j f)]]].

Lemma touchedP X b : reflect (exists f i j, [/\ block f = b, node f (X i f) <> node f (X j f)
    & label f (X i f) <> label f (X j f)]) (b \in touched X).
Proof.
rewrite inE; apply: (iffP existsP).
  by move=> [f /existsP[i /existsP[j /and3P[/eqP ? /eqP ? /eqP ?]]]]; exists f, i, j.
move=> [f [i [j [/eqP h1 /eqP h2 /eqP h3]]]]; exists f; apply/existsP; exists i.
by apply/existsP; exists j; rewrite h1 h2 h3.
Qed.

(* If nodes and labels of v and w differ, and w' has w's node, then v and w' have different labels. *)
Lemma labels_apart f (v w w' : V) :
  node f v <> node f w -> label f v <> label f w -> node f w' = node f w -> label f v <> label f w'.
Proof.
move=> h1 h2 h3; case: (chains f) => h; first by rewrite (h w' w).
by move/h; rewrite h3.
Qed.

(* Which blocks a table touches is a matter of the totals. *)
Lemma touched_same X Y : same_totals X Y -> touched X = touched Y.
Proof.
have sub X' Y' : same_totals X' Y' -> touched X' \subset touched Y'.
  move=> /same_totalsP h; apply/subsetP=> b /touchedP[f [i [j [e h1 h2]]]]; apply/touchedP.
  have ex k : exists k', forall f, block f = b -> node f (Y' k' f) = node f (X' k f).
    have : 0 < total tuple_in Y' b (tuple_in (X' k) b).
      by rewrite -h; apply/card_gt0P; exists k; rewrite inE.
    by case/card_gt0P=> k'; rewrite inE => /tuple_inP; exists k'.
  have [i' /(_ f e) ei] := ex i; have [j' /(_ f e) ej] := ex j.
  exists f, i', j'; split; rewrite // ?ei ?ej //.
  have k1 := labels_apart h1 h2 ej.
  apply/nesym; apply: (@labels_apart f _ (X' i f)) => //; first by rewrite ej; apply/nesym.
  exact/nesym.
by move=> h; apply/eqP; rewrite eqEsubset !sub // same_totals_sym.
Qed.

(* ---- one exchange, as the table sees it ---- *)

(* The blocks whose carrier the table sees: a feature moves, and its label changes. *)
Definition seen_blocks (x y : record) :=
  [set b | [exists f, [&& block f == b, moves x y f & label f (x f) != label f (y f)]]].

Lemma seen_blocksP (x y : record) b : reflect
  (exists f, [/\ block f = b, moves x y f & label f (x f) <> label f (y f)]) (b \in seen_blocks x y).
Proof.
rewrite inE; apply: (iffP existsP) => -[f].
  by case/and3P=> /eqP e h /eqP k; exists f.
by case=> e h /eqP k; exists f; rewrite e eqxx h.
Qed.

Lemma seen_differ (x y : record) b : b \in seen_blocks x y -> b \in differ x y.
Proof. by move/seen_blocksP=> [f [<- h _]]; apply: moves_differ h. Qed.

Section OneExchange.
Variables (X : dataset) (p : 'I_n) (y : record) (c : {ffun B -> 'I_n}).
Hypothesis hc : carriers X p y c.
Let Y := exchange X p y c.
Let seen := seen_blocks (X p) y.
(* The carriers that the table sees. *)
Definition seen_carriers := [set c b | b in seen].

Lemma person_not_carrier : p \notin seen_carriers.
Proof.
by apply/imsetP=> -[b /seen_differ hb e]; move: (carrier_other hc hb); rewrite -e eqxx.
Qed.

Lemma carrier_label_before b f : block f = b -> moves (X p) y f ->
  label f (X p f) <> label f (y f) -> label f (X p f) <> label f (X (c b) f).
Proof.
move=> e mv k; apply: (@labels_apart f _ (y f)) => //; first exact/eqP.
have d : b \in differ (X p) y by rewrite -e; apply: moves_differ mv.
exact: carrier_node hc d e.
Qed.

Lemma others_unseen i : i \notin p |: seen_carriers -> cells X i = cells Y i.
Proof.
rewrite in_setU1 negb_or => /andP[ip iE].
apply/ffunP=> f; rewrite /cells /cell [LHS]ffunE [RHS]ffunE.
rewrite /Y exchange_other //; case: ifP => // /andP[mv /eqP e].
have d : block f \in differ (X p) y := moves_differ _ mv.
have ns : ~~ (label f (X p f) != label f (y f)).
  apply: contra iE => k; apply/imsetP; exists (block f) => //.
  by apply/seen_blocksP; exists f; split=> //; apply/eqP.
move/negbNE/eqP: ns => ns; case: (chains f) => h; last by move: mv; rewrite /Features.moves (h _ _ ns) eqxx.
by rewrite ns; apply: h; rewrite -e; apply: carrier_node hc d erefl.
Qed.

Lemma carrier_apart_from_person j : j \in seen_carriers ->
  (cells X p != cells X j) && (cells Y p != cells Y j).
Proof.
move=> jE; have jp : j != p by apply: contraNneq person_not_carrier => <-.
case/imsetP: jE => b /seen_blocksP[f [e mv k]] ej; apply/andP; split; apply/eqP.
  move/ffunP/(_ f); rewrite /cells /cell !ffunE ej; exact: carrier_label_before.
move/ffunP/(_ f); rewrite /cells /cell /Y exchange_person [LHS]ffunE [RHS]ffunE exchange_other //.
by rewrite mv e ej eqxx /= => /esym.
Qed.

Lemma carriers_apart j i : j \in seen_carriers -> i \in seen_carriers -> j != i ->
  ~~ ((cells X j == cells X i) && (cells Y j == cells Y i)).
Proof.
move=> jE iE ji; have jp : j != p by apply: contraNneq person_not_carrier => <-.
have ip : i != p by apply: contraNneq person_not_carrier => <-.
case/imsetP: jE => b /seen_blocksP[f [e mv k]] ej.
apply/negP=> /andP[/eqP/ffunP/(_ f) h1 /eqP/ffunP/(_ f)].
move: h1; rewrite /cells /cell /Y [LHS]ffunE [RHS]ffunE => h1.
rewrite [LHS]ffunE [RHS]ffunE !exchange_other // mv e -ej eqxx (negbTE ji) /= -h1 ej.
exact: carrier_label_before.
Qed.

Lemma seen_touched : inhabited X y -> seen \subset touched X.
Proof.
move=> /inhabitedP hy; apply/subsetP=> b /seen_blocksP[f [e mv k]].
have [j /eqP/tuple_inP/(_ f e) ej] := hy b.
apply/touchedP; exists f, p, j; split=> //; first by rewrite ej; apply/eqP.
by apply: (@labels_apart f _ (y f)) => //; apply/eqP.
Qed.

Lemma few_seen_carriers : (#|seen_carriers| <= #|seen|)%N.
Proof. exact: leq_imset_card. Qed.

Lemma exchange_norms_seen :
  (l1 (cells X) (cells Y) <= (2 * (#|seen| + 1))%N%:Z)%R /\
  (l2_squared (cells X) (cells Y) <= (#|seen| ^ 2 + #|seen| + 2)%N%:Z)%R.
Proof.
have k := few_seen_carriers; split.
  apply: le_trans (l1_le others_unseen) _; rewrite lez_nat.
  by rewrite leq_mul2l /= cardsU1 person_not_carrier add1n addn1 ltnS.
apply: le_trans
  (star_l2 person_not_carrier others_unseen carrier_apart_from_person carriers_apart) _.
by rewrite lez_nat leq_add2r leq_add // leq_exp2r.
Qed.

End OneExchange.

(* EXCHANGE NORMS. If X ~ Y and the table touches q_S blocks, the tables of X and Y differ by at most
   2(q_S + 1) in l1 and by at most q_S^2 + q_S + 2 in squared l2. Features of the table may be coarser
   or finer than what is published, joint, or unpublished. *)
Theorem exchange_norms X Y : adjacent X Y ->
  (l1 (cells X) (cells Y) <= (2 * (#|touched X| + 1))%N%:Z)%R /\
  (l2_squared (cells X) (cells Y) <= (#|touched X| ^ 2 + #|touched X| + 2)%N%:Z)%R.
Proof.
have one X' Y' : arises X' Y' ->
    (l1 (cells X') (cells Y') <= (2 * (#|touched X'| + 1))%N%:Z)%R /\
    (l2_squared (cells X') (cells Y') <= (#|touched X'| ^ 2 + #|touched X'| + 2)%N%:Z)%R.
  move=> /arisesP[p [y [c [hy hc ->]]]]; have [h1 h2] := exchange_norms_seen hc.
  have k := subset_leq_card (seen_touched p hy).
  split; [apply: le_trans h1 _|apply: le_trans h2 _]; rewrite lez_nat; first by lia.
  by rewrite leq_add2r leq_add // leq_exp2r.
move=> h; case/orP: (h) => [/one //|/one].
rewrite -(touched_same (adjacent_same_totals h)) (l1_sym (cells Y)) (l2_squared_sym (cells Y)); exact.
Qed.

End ExchangeNorms.
