(* Linked files, promise B (one member): members live in units, units have a smallest and a largest size.
   Every member can become every possible person in every unit; one more member may have to make room.
   At most a_M = 2 + (number of blocks with an own feature of members) members change, and at most 2 a_M
   units. *)
From mathcomp Require Import all_ssreflect fingroup perm zify.
Require Import Datasets Reach Features.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Section LinkedReach.
(* Own features of members: F, in blocks B, with leaves V and published nodes N, as in Features.v.
   Units: H. What is published of a unit's place: P (constant if nothing is). Members are counted
   exactly by disjoint blocks; the one block b0 may also contain the place of the unit. *)
Variables (F B V N H P : finType) (block : F -> B) (node : F -> V -> N) (place : H -> P) (b0 : B).
(* Every unit has at least [lo] members; unit h has at most [hi h]. *)
Variables (lo : nat) (hi : H -> nat) (n : nat).

(* A member: a person (own features) in a unit. *)
Definition member : finType := [finType of record F V * H].
Definition published (r : member) (b : B) : [finType of {ffun F -> option N} * option P] :=
  (tuple_in block node r.1 b, if b == b0 then Some (place r.2) else None).

Local Notation dataset := (dataset member n).
Local Notation same_totals := (@same_totals member B _ published n).
Local Notation inhabited := (@inhabited member B _ published n).
Local Notation differ := (@differ member B _ published).
Local Notation carriers := (@carriers member B _ published n).
Implicit Types (X Y : dataset) (p i j : 'I_n) (r : member) (h v : H) (b : B).
Implicit Type c : {ffun B -> 'I_n}.

Definition unit_size X h := #|[set i | (X i).2 == h]|.
Definition sizes_allowed X := [forall h, (lo <= unit_size X h) && (unit_size X h <= hi h)].

(* The blocks that contain a published own feature of members. *)
Definition own_blocks := [set b | [exists f, exists v, exists w,
  (block f == b) && (node f v != node f w)]].

(* Published values agree if the own tuples do and, in block b0, the places do. *)
Lemma publishedP (r r' : member) b : reflect
  (tuple_in block node r.1 b = tuple_in block node r'.1 b /\ (b = b0 -> place r.2 = place r'.2))
  (published r b == published r' b).
Proof.
rewrite /published xpair_eqE; apply: (iffP andP) => [[/eqP e h]|[-> h]].
  by split=> // eb; move: h; rewrite eb eqxx => /eqP[].
by rewrite eqxx; split=> //; case: (eqVneq b b0) => // /h ->; rewrite eqxx.
Qed.

(* Outside the own blocks nothing of a person is published. *)
Lemma not_own b (x y : record F V) : b \notin own_blocks ->
  tuple_in block node x b = tuple_in block node y b.
Proof.
move=> nb; apply/eqP/tuple_inP=> f e; apply/eqP; apply: contraNT nb => ne.
by rewrite inE; apply/existsP; exists f; apply/existsP; exists (x f); apply/existsP; exists (y f);
  rewrite e eqxx.
Qed.

Lemma differ_own (r r' : member) b : b \in differ r r' -> b != b0 -> b \in own_blocks.
Proof.
rewrite inE => d nb; apply: contraNT d => no; apply/publishedP; split; first exact: not_own.
by move=> e; rewrite e eqxx in nb.
Qed.

(* ---- step 1: hand over published values, places with their units ---- *)

(* The unit in which the person lives after step 1: the unit of the carrier of block b0. *)
Definition new_unit X p y v c : H :=
  if b0 \in differ (X p) (y, v) then (X (c b0)).2 else (X p).2.

Definition step1 X p y v c : dataset :=
  let D := differ (X p) (y, v) in
  [ffun i => if i == p then (y, new_unit X p y v c) else
     ([ffun f => if (block f \in D) && (c (block f) == i) then (X p).1 f else (X i).1 f],
      if (b0 \in D) && (c b0 == i) then (X p).2 else (X i).2)].

Section Step1.
Variables (X : dataset) (p : 'I_n) (y : record F V) (v : H) (c : {ffun B -> 'I_n}).
Hypothesis hc : carriers X p (y, v) c.
Let D := differ (X p) (y, v).
Let Y := step1 X p y v c.
Let s b : {perm 'I_n} := if b \in D then tperm p (c b) else 1%g.

Lemma step1_person : Y p = (y, new_unit X p y v c).
Proof. by rewrite ffunE eqxx. Qed.

Lemma new_place : place (new_unit X p y v c) = place v.
Proof.
rewrite /new_unit; case: ifP => [d|/negbT].
  by have /eqP/publishedP[_ ->] := carriersP _ _ _ _ _ hc b0 d.
by rewrite inE negbK => /publishedP[_ ->].
Qed.

Lemma step1_unit i : (Y i).2 = (X (s b0 i)).2.
Proof.
rewrite ffunE /s; case: (eqVneq i p) => [->|ip].
  by rewrite /new_unit -/D; case: ifP => d; rewrite ?tpermL ?perm1.
rewrite -/D; case d : (b0 \in D) => /=; last by rewrite perm1.
case: (eqVneq (c b0) i) => [<-|ci]; first by rewrite tpermR.
by rewrite tpermD // eq_sym.
Qed.

Lemma step1_tuple i b : tuple_in block node (Y i).1 b = tuple_in block node (X (s b i)).1 b.
Proof.
rewrite ffunE /s; case: (eqVneq i p) => [->|ip] /=.
  case d : (b \in D); rewrite ?tpermL ?perm1.
    by have /eqP/publishedP[-> _] := carriersP _ _ _ _ _ hc b d.
  by move/negbT: d; rewrite inE negbK => /publishedP[-> _].
apply/eqP/tuple_inP=> f e; rewrite ffunE e -/D; case d : (b \in D) => /=; last by rewrite perm1.
case: (eqVneq (c b) i) => [<-|ci]; first by rewrite tpermR.
by rewrite tpermD // eq_sym.
Qed.

Lemma step1_totals : same_totals X Y.
Proof.
apply: (@rearranged_totals _ _ _ _ _ _ _ s) => i b; apply/eqP/publishedP.
by rewrite step1_tuple; split=> // ->; rewrite step1_unit.
Qed.

Lemma step1_sizes h : unit_size Y h = unit_size X h.
Proof.
rewrite /unit_size -(card_preimset [set i | (X i).2 == h] (@perm_inj _ (s b0))).
by apply: eq_card => i; rewrite !inE step1_unit.
Qed.

Lemma step1_changed : changed X Y \subset p |: [set c b | b in D].
Proof.
apply/subsetP=> i; rewrite in_setU1 [i \in changed _ _]inE; case: (eqVneq i p) => //= ip.
apply: contraNT => /imsetP none; apply/eqP; rewrite ffunE (negbTE ip) -/D.
have no b : (b \in D) && (c b == i) = false.
  by apply/negP=> /andP[d /eqP e]; case: none; exists b.
rewrite no [LHS]surjective_pairing; congr pair.
by apply/ffunP=> f; rewrite ffunE no.
Qed.
End Step1.

(* ---- step 2: make room ---- *)

(* The person moves from a unit to unit v of the same published place. If v has members, one of them
   takes the person's place; if v is empty, units may be empty, and the person moves alone. *)
Lemma make_room X p v : sizes_allowed X -> place (X p).2 = place v -> 0 < hi v ->
  exists Y j, [/\ same_totals X Y, sizes_allowed Y, Y p = ((X p).1, v),
    changed X Y \subset [set p; j]
    & (X p).2 = v \/ unit_size X v = 0 -> changed X Y \subset [set p]].
Proof.
move=> /forallP sizes here hv.
case: (eqVneq (X p).2 v) => [<-|away].
  exists X, p; split; rewrite ?same_totals_refl //; first exact/forallP.
  - by case: (X p).
  - by apply/subsetP=> i; rewrite inE eqxx.
  - by move=> _; apply/subsetP=> i; rewrite inE eqxx.
case: (posnP (unit_size X v)) => [empty|/card_gt0P[j]].
  pose Y : dataset := [ffun i => if i == p then ((X p).1, v) else X i].
  have changedY : changed X Y \subset [set p].
    by apply/subsetP=> i; rewrite !inE ffunE; case: (eqVneq i p) => //; rewrite eqxx.
  exists Y, p; split=> //; last by rewrite setUid.
  - apply: (@rearranged_totals _ _ _ _ _ _ _ (fun=> 1%g)) => i b; rewrite perm1 ffunE.
    by case: (eqVneq i p) => // ->; apply/eqP/publishedP; split.
  - apply/forallP=> h; have /andP[h1 h2] := sizes h; have /andP[v1 v2] := sizes v.
    have lo0 : lo = 0 by move: v1; rewrite empty leqn0 => /eqP.
    rewrite lo0 /=; case: (eqVneq h v) => [->|hv'].
      apply: leq_trans hv; rewrite -(cards1 p); apply: subset_leq_card; apply/subsetP=> i.
      rewrite !inE ffunE; case: (eqVneq i p) => //= _ /eqP e.
      by move/eqP: empty; rewrite cards_eq0 => /eqP/setP/(_ i); rewrite !inE e eqxx.
    apply: leq_trans h2; apply: subset_leq_card; apply/subsetP=> i; rewrite !inE ffunE.
    by case: (eqVneq i p) => //= _ /eqP e; rewrite e eqxx in hv'.
  - by rewrite ffunE eqxx.
rewrite inE => /eqP ju; have jp : j != p by apply: contraNneq away => <-; apply/eqP.
pose s := tperm p j; pose Y : dataset := [ffun i => ((X i).1, (X (s i)).2)].
exists Y, j; split.
- apply: (@rearranged_totals _ _ _ _ _ _ _ (fun=> 1%g)) => i b; rewrite perm1 ffunE.
  apply/eqP/publishedP; split=> //= _; rewrite /s.
  by case: tpermP => [->|->|//]; rewrite ?ju ?here.
- apply/forallP=> h; have := sizes h; rewrite /unit_size.
  rewrite -(card_preimset [set i | (X i).2 == h] (@perm_inj _ s)).
  by rewrite (eq_card (_ : _ =i [set i | (Y i).2 == h])) // => i; rewrite !inE ffunE.
- by rewrite ffunE /s tpermL ju.
- apply/subsetP=> i; rewrite !inE ffunE /s; case: tpermP => [->|->|_ _]; rewrite ?eqxx ?orbT //.
  by case: (X i) => x u; rewrite eqxx.
case=> [e|e]; first by rewrite e eqxx in away.
by move/eqP: e; rewrite cards_eq0 => /eqP/setP/(_ j); rewrite !inE ju eqxx.
Qed.

(* REACH IN LINKED FILES. A member of a dataset with allowed sizes becomes any person y in any unit v
   with room for one, if the published values of y in v are inhabited. All totals are kept, all sizes
   stay allowed, and at most 2 + (number of blocks with an own feature) members change. *)
Theorem linked_reach X p y v : sizes_allowed X -> 0 < hi v -> inhabited X (y, v) ->
  exists Y, [/\ same_totals X Y, sizes_allowed Y, Y p = (y, v) & distance X Y <= 2 + #|own_blocks|].
Proof.
move=> sizes hv hy; have [c' /carriersP hc'] := carriers_exist p hy.
(* the carrier of block b0 is a member of v if a member of v can be *)
pose c : {ffun B -> 'I_n} := [ffun b => if b == b0 then
  odflt (c' b) [pick j | ((X j).2 == v) && (published (X j) b == published (y, v) b)] else c' b].
have hc : carriers X p (y, v) c.
  apply/carriersP=> b d; rewrite ffunE; case: eqP => [_|_]; last exact: hc'.
  by case: pickP => [j /andP[_ /eqP]|_] //; apply: hc'.
pose D := differ (X p) (y, v); pose Y1 := step1 X p y v c.
have sizes1 : sizes_allowed Y1.
  by apply/forallP=> h; rewrite step1_sizes; have /forallP := sizes.
have here : place (Y1 p).2 = place v by rewrite step1_person /=; apply: new_place hc.
have [Y2 [j [t2 sizes2 e2 few alone]]] := make_room sizes1 here hv.
exists Y2; split=> //; first exact: same_totals_trans (step1_totals hc) t2.
  by rewrite e2 step1_person.
have sub : changed X Y2 \subset changed X Y1 :|: changed Y1 Y2.
  by apply/subsetP=> i; rewrite !inE; apply: contraNT; rewrite negb_or !negbK => /andP[/eqP -> /eqP ->].
have cD : #|p |: [set c b | b in D]| <= 1 + #|D|.
  by rewrite cardsU1 leq_add ?leq_b1 ?leq_imset_card.
have few1 := step1_changed X p y v c.
have Dsub : D \subset b0 |: own_blocks.
  by apply/subsetP=> b d; rewrite in_setU1; case: eqP => //= /eqP nb; apply: differ_own d nb.
have three : distance X Y2 <= 2 + #|D|.
  apply: (@leq_trans #|j |: (p |: [set c b | b in D])|).
    apply: subset_leq_card; apply: subset_trans sub _; rewrite subUset; apply/andP; split.
      exact: subset_trans few1 (subsetUr _ _).
    apply: subset_trans few _; rewrite subUset !sub1set !inE eqxx orbT /=.
    by rewrite eqxx.
  by rewrite cardsU1 -[2]/(1 + 1) -addnA leq_add ?leq_b1.
case: (boolP ((b0 \in D) && (b0 \notin own_blocks))) => [/andP[bD bo]|]; last first.
  rewrite negb_and negbK => h; apply: leq_trans three _; rewrite leq_add2l; apply: subset_leq_card.
  apply/subsetP=> b bD; have := subsetP Dsub b bD; rewrite in_setU1 => /orP[/eqP e|//].
  by case/orP: h => [/negP[]|ob]; rewrite -?e // e.
(* the place alone is published: whoever hands over the place makes room as well *)
have only : changed Y1 Y2 \subset [set p].
  apply: alone; case: (posnP (unit_size Y1 v)) => [->|]; first by right.
  rewrite step1_sizes => /card_gt0P[k]; rewrite inE => /eqP ku; left.
  rewrite step1_person /new_unit /= -/D bD ffunE eqxx; case: pickP => [i /andP[/eqP //]|none].
  have := none k; rewrite ku eqxx /= => /publishedP; case; split; last by rewrite ku.
  exact: not_own.
apply: (@leq_trans #|p |: [set c b | b in D]|).
  apply: subset_leq_card; apply: subset_trans sub _; rewrite subUset few1 /=.
  by apply: subset_trans only _; apply: subsetUl.
apply: leq_trans cD _; rewrite -[2]/(1 + 1) -addnA leq_add2l.
apply: leq_trans (subset_leq_card Dsub) _; by rewrite cardsU1 leq_add ?leq_b1.
Qed.

(* ---- units ---- *)

(* The composition of a unit: how many members with each own record it has. *)
Definition composition X h : {ffun record F V -> 'I_n.+1} :=
  [ffun x => inord #|[set i | X i == (x, h)]|].

(* UNITS THAT CHANGE. Each changed member leaves one unit and enters one: if a members change, at most
   2a units change their composition. *)
Theorem changed_units X Y :
  #|[set h | composition X h != composition Y h]| <= 2 * distance X Y.
Proof.
pose before := [set (X i).2 | i in changed X Y]; pose after := [set (Y i).2 | i in changed X Y].
apply: (@leq_trans #|before :|: after|); last first.
  apply: leq_trans (leq_card_setU _ _) _; rewrite mul2n -addnn.
  by apply: leq_add; apply: leq_imset_card.
apply: subset_leq_card; apply/subsetP=> h; rewrite inE; apply: contraNT.
rewrite in_setU negb_or => /andP[nb na]; apply/eqP/ffunP=> x; rewrite !ffunE; congr inord.
apply: eq_card => i; rewrite !inE; case ch : (i \in changed X Y); last first.
  by move: ch; rewrite inE => /negbFE/eqP ->.
have -> : (X i == (x, h)) = false.
  by apply: contraNF nb => /eqP e; apply/imsetP; exists i; rewrite // e.
apply/esym; apply: contraNF na => /eqP e; apply/imsetP; exists i; by rewrite // e.
Qed.

End LinkedReach.
